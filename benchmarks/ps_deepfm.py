#!/usr/bin/env python3
"""DeepFM with parameter servers, in records per second, beside the same model
in Python's torch.

    benchmarks/ps_deepfm.py [--bin build/bin] [--records 200000] [--rounds 5]
                            [--steps 1500] [--jobs 1x1,2x1,2x2,4x2]

A job "WxS" has W workers and S servers, one thread each, minibatches of 64,
asynchronous. Its rate is that of the records between the first commit and the
last. The peer is Python's torch with W processes of one thread, Adam, the same
minibatches from tensors in memory:

* rpc: embeddings on S torch.distributed.rpc servers, if the package has rpc
* ddp: otherwise all of it in every process, DistributedDataParallel over Gloo

Rounds alternate; the table has medians and the spread of the ratio.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

FIELDS, INPUT_DIM, DIM, BATCH = 10, 5383, 16, 64


def make_net():
    import torch
    from torch import nn

    class DeepFm(nn.Module):
        """examples/deepfm/deepfm.cc."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(INPUT_DIM, DIM, padding_idx=0)
            self.bias = nn.Embedding(INPUT_DIM, 1, padding_idx=0)
            self.fc1 = nn.Linear(FIELDS * DIM, 64)
            self.fc2 = nn.Linear(64, 1)

        def forward(self, ids):
            rows = self.embedding(ids)
            pairs = (rows.sum(1).square() - rows.square().sum(1)).sum(1) / 2
            deep = self.fc2(torch.relu(self.fc1(rows.flatten(1))))
            return self.bias(ids).sum(1).squeeze(1) + pairs + deep.squeeze(1)

    return DeepFm()


def peer_rank(steps):
    """One process of the peer, with torchrun's environment."""
    import torch
    import torch.distributed
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(make_net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    ids = torch.randint(0, INPUT_DIM, (200000, FIELDS))
    labels = torch.rand(200000).round()

    def run(first, last):
        for step in range(first, last):
            at = step * BATCH % (200000 - BATCH)
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(ids[at:at + BATCH]), labels[at:at + BATCH])
            loss.backward()
            optimizer.step()
            loss.item()

    run(0, 20)
    torch.distributed.barrier()
    start = time.perf_counter()
    run(20, 20 + steps)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        size = torch.distributed.get_world_size()
        print(size * steps * BATCH / (time.perf_counter() - start))


def measure_peer(args, workers):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(workers):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(workers),
                           LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        ranks.append(subprocess.Popen(
            [args.python, __file__, "--peer", str(args.steps)],
            env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("the peer failed")
    return float(outputs[0])


def measure_job(args, workers, servers):
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--job_name=bench", f"--state_dir={folder}",
                 "--model_zoo=examples",
                 "--model_def=deepfm.deepfm.custom_model",
                 f"--training_data={args.data}/train",
                 f"--minibatch_size={BATCH}", "--num_threads=1",
                 f"--num_epochs={args.epochs}",
                 f"--event_log={folder}/events",
                 f"--ledger_audit={folder}/audit",
                 "--distribution_strategy=ParameterServerStrategy",
                 "--use_async", f"--num_workers={workers}",
                 f"--num_ps_pods={servers}"] + args.flag
        subprocess.run([os.path.join(args.bin, "elasticdl"), "train"] + flags,
                       check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with open(f"{folder}/audit") as audit:
            lines = [json.loads(line) for line in audit]
        first, last = lines[0]["time"], lines[-1]["time"]
        records = sum(line["end"] - line["begin"] for line in lines
                      if line["time"] > first)
        return records / (last - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--records", type=int, default=200000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--jobs", default="1x1,1x2,2x1,2x2,4x1,4x2")
    parser.add_argument("--flag", action="append", default=[],
                        help="one more flag of `elasticdl train`")
    parser.add_argument("--no-peer", action="store_true")
    args = parser.parse_args()
    jobs = [tuple(map(int, job.split("x"))) for job in args.jobs.split(",")]
    rates = {job: [] for job in jobs}
    peers = {workers: [] for workers, _ in jobs}
    with tempfile.TemporaryDirectory() as data:
        args.data = data
        subprocess.run([os.path.join(args.bin, "elasticdl"), "data", "generate",
                        "frappe", f"--records={args.records}",
                        f"--output={data}"], check=True,
                       stdout=subprocess.DEVNULL)
        for _ in range(args.rounds):
            for workers in peers:
                peers[workers].append(
                    0 if args.no_peer else measure_peer(args, workers))
                for job in jobs:
                    if job[0] == workers:
                        rates[job].append(measure_job(args, *job))
    print("| workers | servers | records/s | Python's torch | ratio |\n"
          "|---|---|---|---|---|")
    for job in jobs:
        ratios = sorted(mine / peer if peer else 0
                        for mine, peer in zip(rates[job], peers[job[0]]))
        print(f"| {job[0]} | {job[1]} | {statistics.median(rates[job]):,.0f} | "
              f"{statistics.median(peers[job[0]]):,.0f} | "
              f"{statistics.median(ratios):.2f} "
              f"({ratios[0]:.2f}-{ratios[-1]:.2f}) |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--peer":
        peer_rank(int(sys.argv[2]))
    else:
        main()
