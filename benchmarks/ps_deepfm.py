#!/usr/bin/env python3
"""DeepFM with parameter servers, in records per second, beside the same model
in Python's torch.

    benchmarks/ps_deepfm.py [--bin build/bin] [--records 200000] [--rounds 5]
                            [--steps 500] [--jobs 1x1,2x1,2x2,4x2] [--peers rpc,ddp]

A job "WxS" has W workers and S servers, one thread each, minibatches of 64,
asynchronous. Its rate is that of the records from a fifth of them to 95 %,
when all workers train. The peer is Python's torch with W processes of one thread, Adam, the same
size of minibatches, from tensors in memory:

* rpc: the embeddings are on S torch.distributed.rpc servers, the other layers
  in a DistributedDataParallel over Gloo; one DistributedOptimizer for all
* ddp: all of it in every process, DistributedDataParallel over Gloo

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


def interact(torch, rows, bias, fc1, fc2):
    """What examples/deepfm/deepfm.cc does with its rows."""
    pairs = (rows.sum(1).square() - rows.square().sum(1)).sum(1) / 2
    deep = fc2(torch.relu(fc1(rows.flatten(1))))
    return bias.sum(1).squeeze(1) + pairs + deep.squeeze(1)


TABLES = {}


class Table:
    """On a server: one embedding, made by whoever asks first."""

    def __init__(self, dim):
        from torch import nn
        self.module = TABLES.setdefault(
            dim, nn.Embedding(INPUT_DIM, dim, padding_idx=0))

    def forward(self, ids):
        # Not the module: its backward fails when another worker's optimizer
        # has changed the weight since then.
        weight = self.module.weight
        return weight.index_select(0, ids.flatten()).view(*ids.shape, -1)

    def parameters(self):
        from torch.distributed import rpc
        return [rpc.RRef(p) for p in self.module.parameters()]


def timed(steps, step, barrier, workers):
    for number in range(20):
        step(number)
    barrier()
    start = time.perf_counter()
    for number in range(20, 20 + steps):
        step(number)
    barrier()
    return workers * steps * BATCH / (time.perf_counter() - start)


def batches(torch):
    ids = torch.randint(0, INPUT_DIM, (200000, FIELDS))
    labels = torch.rand(200000).round()

    def batch(number):
        at = number * BATCH % (200000 - BATCH)
        return ids[at:at + BATCH], labels[at:at + BATCH]

    return batch


def peer_rank(kind, steps, rank, workers, servers, ports):
    """One process of the peer."""
    import torch
    import torch.distributed
    from torch import nn
    from torch.distributed import autograd, rpc
    from torch.distributed.optim import DistributedOptimizer
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    cross_entropy = nn.functional.binary_cross_entropy_with_logits
    batch = batches(torch)
    if kind == "rpc":
        name = f"worker{rank}" if rank < workers else f"ps{rank - workers}"
        rpc.init_rpc(name, rank=rank, world_size=workers + servers,
                     rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
                         init_method=f"tcp://127.0.0.1:{ports[0]}"))
    if rank < workers:
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{ports[1]}", rank=rank,
            world_size=workers)

    class Net(nn.Module):
        def __init__(self, tables):
            super().__init__()
            if tables:
                self.embedding = nn.Embedding(INPUT_DIM, DIM, padding_idx=0)
                self.bias = nn.Embedding(INPUT_DIM, 1, padding_idx=0)
            self.fc1 = nn.Linear(FIELDS * DIM, 64)
            self.fc2 = nn.Linear(64, 1)

        def forward(self, ids, rows=None, bias=None):
            if rows is None:
                rows, bias = self.embedding(ids), self.bias(ids)
            return interact(torch, rows, bias, self.fc1, self.fc2)

    def whole(number):
        ids, labels = batch(number)
        optimizer.zero_grad()
        loss = cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    def remote(number):
        ids, labels = batch(number)
        with autograd.context() as context:
            rows = [table.rpc_async().forward(ids) for table in tables]
            rows = [one.wait() for one in rows]
            loss = cross_entropy(model(ids, *rows), labels)
            autograd.backward(context, [loss])
            optimizer.step(context)
            loss.item()

    if rank < workers:
        model = DistributedDataParallel(Net(kind == "ddp"))
        if kind == "ddp":
            optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
        else:
            tables = [rpc.remote("ps0", Table, args=(DIM,)),
                      rpc.remote(f"ps{servers - 1}", Table, args=(1,))]
            parameters = [rpc.RRef(p) for p in model.parameters()]
            for table in tables:
                parameters += table.rpc_sync().parameters()
            optimizer = DistributedOptimizer(torch.optim.Adam, parameters,
                                             lr=0.001)
        rate = timed(steps, whole if kind == "ddp" else remote,
                     torch.distributed.barrier, workers)
        if rank == 0:
            print(rate)
    if kind == "rpc":
        rpc.shutdown()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def measure_peer(args, kind, workers, servers):
    ports = [free_port(), free_port()]
    ranks = [
        subprocess.Popen(
            [args.python, __file__, "--peer", kind, str(args.steps), str(rank),
             str(workers), str(servers)] + ports,
            env=dict(os.environ, OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for rank in range(workers + (servers if kind == "rpc" else 0))]
    # When a worker fails, the servers would wait for it for ever.
    outputs, failed = [], False
    for rank in ranks:
        if failed:
            rank.kill()
        outputs.append(rank.communicate()[0])
        failed = failed or rank.returncode != 0
    if failed:
        raise RuntimeError(f"the peer ({kind}) failed")
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
        job = subprocess.Popen(
            [os.path.join(args.bin, "elasticdl"), "train"] + flags,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # (time, records committed until then)
        seen = follow(job, f"{folder}/audit")
        if job.returncode != 0:
            raise RuntimeError(f"{flags}: exit code {job.returncode}")
    total = seen[-1][1]
    begin = next(entry for entry in seen if entry[1] >= 0.2 * total)
    end = next(entry for entry in seen if entry[1] >= 0.95 * total)
    return (end[1] - begin[1]) / (end[0] - begin[0])


def follow(job, path):
    seen, file, text = [(time.time(), 0)], None, ""
    while True:
        over = job.poll() is not None
        if file is None and os.path.exists(path):
            file = open(path)
        text += file.read() if file else ""
        lines = text.split("\n")
        text = lines.pop()
        if lines:
            ranges = [json.loads(line) for line in lines]
            new = sum(entry["end"] - entry["begin"] for entry in ranges)
            seen.append((time.time(), seen[-1][1] + new))
        if over:
            return seen
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--records", type=int, default=200000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--jobs", default="1x1,1x2,2x1,2x2,4x1,4x2")
    parser.add_argument("--flag", action="append", default=[],
                        help="one more flag of `elasticdl train`")
    parser.add_argument("--peers", default="rpc,ddp")
    args = parser.parse_args()
    jobs = [tuple(map(int, job.split("x"))) for job in args.jobs.split(",")]
    kinds = args.peers.split(",") if args.peers else []
    rates = {job: {kind: [] for kind in ["mine"] + kinds} for job in jobs}
    with tempfile.TemporaryDirectory() as data:
        args.data = data
        subprocess.run([os.path.join(args.bin, "elasticdl"), "data", "generate",
                        "frappe", f"--records={args.records}",
                        f"--output={data}"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(args.rounds):
            for job in jobs:
                rates[job]["mine"].append(measure_job(args, *job))
                for kind in kinds:
                    rates[job][kind].append(measure_peer(args, kind, *job))
    titles = [title for kind in kinds for title in (kind, "ratio")]
    print("| workers | servers | records/s |", " | ".join(titles), "|")
    print("|---|---|---|" + "---|" * len(titles))
    for job in jobs:
        mine = rates[job]["mine"]
        cells = [str(job[0]), str(job[1]), f"{statistics.median(mine):,.0f}"]
        for kind in kinds:
            peer = rates[job][kind]
            ratios = sorted(a / b for a, b in zip(mine, peer))
            cells += [f"{statistics.median(peer):,.0f}",
                      f"{statistics.median(ratios):.1f} "
                      f"({ratios[0]:.1f}-{ratios[-1]:.1f})"]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer_rank(sys.argv[2], *map(int, sys.argv[3:7]), sys.argv[7:9])
    else:
        main()
