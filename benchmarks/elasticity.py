#!/usr/bin/env python3
"""The cost of elasticity: of a world that can change at any step.

Records per second of a job of two workers (master, ledger, control word in
every all-reduce, reports), compared with the same training step in a world
that never changes (fixed_world: same model, data pipeline, buckets, optimizer,
collective, but none of the above), alternating (A B A B ...).

    benchmarks/elasticity.py --data DIR [--rounds 9] [--bin build/bin]
                             [--collective gloo]

DIR is the output of `elasticdl data fetch mnist`. The exit code is 1 if the
median cost is above the target of 1 %.
"""
import argparse
import os
import statistics
import subprocess
import sys

from ddp import measure_elasticdl
from single_worker import MODELS

STEPS = {"CNN": 300, "MLP 784-128-64-10": 3000}
MOST = 0.01


def measure_fixed(args, model_def, steps):
    out = subprocess.run(
        [os.path.join(args.bin, "fixed_world"), "examples", model_def,
         f"{args.data}/train", str(steps), "2", args.collective],
        check=True, capture_output=True, text=True)
    return float(out.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--collective", default="gloo")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    failed = False
    print(f"{'2 workers, ' + args.collective:20} {'elastic':>10} "
          f"{'fixed':>10} {'cost':>7} {'spread':>17}")
    for name, steps in STEPS.items():
        model_def = MODELS[name][0]
        measure_elasticdl(args, model_def, 1, 1)  # compiles the model
        elastic, fixed, costs = [], [], []
        for i in range(args.rounds):
            # Alternate which of the two runs first.
            for which in ("ef", "fe")[i % 2]:
                if which == "e":
                    elastic.append(measure_elasticdl(args, model_def, steps))
                else:
                    fixed.append(measure_fixed(args, model_def, steps))
            costs.append(1 - elastic[-1] / fixed[-1])
        cost = statistics.median(costs)
        failed |= cost > MOST
        print(f"{name:20} {statistics.median(elastic):8.0f}/s "
              f"{statistics.median(fixed):8.0f}/s {cost * 100:6.1f} % "
              f"{min(costs) * 100:6.1f} to {max(costs) * 100:.1f} %",
              flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
