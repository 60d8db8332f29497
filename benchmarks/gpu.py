#!/usr/bin/env python3
"""Jobs on the GPUs of this machine.

* images per second of one worker per GPU over NCCL, compared with
  DistributedDataParallel over NCCL with the same models, alternating; without
  that column if Python's torch has no CUDA
* from SIGKILL of a worker to the next committed step, and the pause of the
  others when its replacement joins (recovery.py)

    benchmarks/gpu.py --data DIR [--workers N] [--rounds 5] [--kills 20]
                      [--bin build/bin]

Says first what it has found. The exit code is 1 if there is no GPU: then nothing
is measured.
"""
import argparse
import os
import statistics
import subprocess
import sys

import ddp
import recovery
from single_worker import MODELS


def output_of(*command):
    """Lines that a program prints; none if it fails or is not there."""
    try:
        done = subprocess.run(command, check=True, capture_output=True,
                              text=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.splitlines()


def find(args):
    """The number of GPUs, and whether Python's torch can use them."""
    gpus = [line for line in output_of("nvidia-smi", "-L")
            if line.startswith("GPU")]
    print("GPUs:       ", "; ".join(gpus) or "none (nvidia-smi finds none)")
    for line in output_of(os.path.join(args.bin, "elasticdl"), "version"):
        if line.split()[0] in ("elasticdl", "libtorch", "NCCL"):
            print("            ", line.strip())
    code = "import torch; print(torch.__version__, torch.cuda.is_available())"
    torch = output_of("/usr/bin/python3", "-c", code)
    print("Python torch:", torch[0] if torch else "none")
    return len(gpus), bool(torch) and torch[0].endswith("True")


def compare(args, has_ddp):
    print(f"{args.workers} workers, images/s       ElasticDL     DDP/NCCL  "
          "ratio (spread)")
    for name, (steps, _) in ddp.WANT.items():
        model_def = MODELS[name][0]
        ddp.measure_elasticdl(args, model_def, 1, 1)  # compiles the model
        ours, ratios, theirs = [], [], []
        for _ in range(args.rounds):
            ours.append(ddp.measure_elasticdl(args, model_def, steps,
                                              args.workers))
            if has_ddp:
                theirs.append(ddp.measure_ddp(name, steps, args.workers,
                                              "cuda"))
                ratios.append(ours[-1] / theirs[-1])
        line = f"{name:25} {statistics.median(ours):12.0f}"
        if has_ddp:
            line += (f" {statistics.median(theirs):12.0f}  "
                     f"{statistics.median(ratios):.2f} "
                     f"({min(ratios):.2f}-{max(ratios):.2f})")
        else:
            line += "  not run: Python's torch has no CUDA"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="cnn", choices=recovery.MODELS)
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    args.device, args.collective = "cuda", "nccl"
    gpus, has_ddp = find(args)
    if gpus == 0:
        print("Nothing was measured.")
        return 1
    args.workers = args.workers or gpus
    compare(args, has_ddp)
    if args.workers > 1:
        recovery.kills_and_joins(args, args.workers)
    else:
        print("Deaths and joins were not measured: they need two GPUs.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
