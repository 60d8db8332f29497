#!/usr/bin/env python3
"""Images per second of two workers, compared with DistributedDataParallel over
Gloo.

Two processes with one thread each, batch 64 per process, the same libtorch and
the same models, alternating (A B A B ...). DDP runs as torchrun would start
it; its data are tensors in memory. ElasticDL reads RecordIO files and keeps
the ledger. The last columns show the scaling from one worker to two:
ElasticDL, two separate jobs of one worker each (what the machine can give),
DDP.

    benchmarks/ddp.py --data DIR [--rounds 5] [--bin build/bin]

DIR is the output of `elasticdl data fetch mnist`. The exit code is 1 if a
median ratio is below the target in WANT.
"""
import argparse
import glob
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from single_worker import BATCH, MODELS, make_net

# name: (steps per round, minimum ratio to DDP)
# Long enough that most steps find their data already decoded (chunks are
# cached), as DDP's data is from the start.
WANT = {"CNN": (400, 1.3), "MLP 784-128-64-10": (6000, 3.0)}


def ddp_round(name, steps, device):
    """One rank: `ddp.py --ddp NAME STEPS DEVICE`, with torchrun's environment."""
    import torch
    import torch.distributed
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo")
    net, shape, optimizer = make_net(name)
    # In place, so that the optimizer keeps its parameters.
    model = DistributedDataParallel(net.to(device))
    images = torch.rand(60000, *shape, device=device)
    labels = torch.randint(0, 10, (60000,), device=device)
    order = torch.randperm(60000, device=device)

    def run(first, last):
        for step in range(first, last):
            at = (step * BATCH) % (60000 - BATCH)
            index = order[at:at + BATCH]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[index]),
                                               labels[index])
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


def measure_ddp(name, steps, size=2, device="cpu"):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(size):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size),
                           LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                           GLOO_SOCKET_IFNAME="lo")
        ranks.append(subprocess.Popen(
            ["/usr/bin/python3", __file__, "--ddp", name, str(steps), device],
            env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise RuntimeError("DistributedDataParallel failed")
    return float(outputs[0])


def measure_elasticdl(args, model_def, steps, size=2, jobs=1):
    """Sum of the rates that the workers report in their logs."""
    with tempfile.TemporaryDirectory() as state:
        running = [subprocess.Popen(
            [os.path.join(args.bin, "elasticdl"), "train",
             "--distribution_strategy=AllreduceStrategy",
             f"--job_name=bench{job}",
             f"--state_dir={state}", "--model_zoo=examples",
             f"--model_def={model_def}", f"--num_workers={size}",
             f"--min_workers={size}", f"--collective={args.collective}",
             f"--device={args.device}",
             f"--training_data={args.data}/train", f"--minibatch_size={BATCH}",
             "--num_threads=1", "--num_epochs=0", f"--max_step={steps + 20}"],
            stdout=subprocess.DEVNULL) for job in range(jobs)]
        if any([job.wait() != 0 for job in running]):
            raise RuntimeError("ElasticDL failed")
        logs = glob.glob(os.path.join(state, "jobs/*/logs/*worker*.log"))
        # The workers do not count their first steps, and neither do we above.
        return sum(
            float(re.search(r"\(([0-9.e+]+) records/s", open(log).read())
                  .group(1)) for log in logs)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--ddp":
        ddp_round(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--collective", default="auto")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    failed = False
    print(f"{'2 workers':20} {'ElasticDL':>12} {'DDP/Gloo':>12} {'ratio':>6} "
          f"{'spread':>11}  want  {'1 -> 2 of ours':>15} "
          f"{'separate':>8} {'of DDP':>7}")
    for name, (steps, want) in WANT.items():
        model_def = MODELS[name][0]
        measure_elasticdl(args, model_def, 1, 1)  # compiles the model
        ours, theirs, ratios = [], [], []
        scaling, separate, their_scaling = [], [], []
        for _ in range(args.rounds):
            ours.append(measure_elasticdl(args, model_def, steps))
            theirs.append(measure_ddp(name, steps))
            ratios.append(ours[-1] / theirs[-1])
            both = measure_elasticdl(args, model_def, steps, 1, jobs=2)
            alone = measure_elasticdl(args, model_def, steps, 1)
            scaling.append(ours[-1] / alone / 2)
            separate.append(both / alone / 2)
            their_scaling.append(theirs[-1] / measure_ddp(name, steps, 1) / 2)
        ratio = statistics.median(ratios)
        failed |= ratio < want
        print(f"{name:20} {statistics.median(ours):10.0f}/s "
              f"{statistics.median(theirs):10.0f}/s {ratio:6.2f} "
              f"{min(ratios):5.2f}-{max(ratios):.2f}  >= {want} "
              f"{statistics.median(scaling):14.2f} "
              f"{statistics.median(separate):8.2f} "
              f"{statistics.median(their_scaling):7.2f}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
