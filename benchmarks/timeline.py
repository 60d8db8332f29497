#!/usr/bin/env python3
"""What --timeline costs: the same job of one worker with and without it.

Runs alternate, and so does which of the two comes first, so that load on the
machine affects both equally. Two numbers for each pair: records per second as
the worker counts them, and CPU seconds of all processes of the job together
without those of a job of one step, which other load hardly changes. The MLP is the hard case: its steps take less
than a millisecond, and each has about ten spans.

    benchmarks/timeline.py --data DIR [--rounds 7] [--steps 4000] [--bin build/bin]

DIR is the output of `elasticdl data fetch mnist`. Takes about a minute.
"""
import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

MODEL = "mnist.mlp.custom_model"
BATCH = 64


def cpu_seconds():
    """Of all processes that have ended below this one."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(args, steps, timeline):
    """Records per second, CPU seconds, and the size of the timeline."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "timeline.json")
        before = cpu_seconds()
        subprocess.run(
            [os.path.join(args.bin, "elasticdl"), "train",
             "--distribution_strategy=Local", "--job_name=bench",
             f"--state_dir={folder}", "--model_zoo=examples",
             f"--model_def={MODEL}", f"--training_data={args.data}/train",
             f"--minibatch_size={BATCH}", "--num_threads=1", "--num_epochs=0",
             f"--max_step={steps + 20}", "--progress=none"]
            + ([f"--timeline={file}"] if timeline else []),
            check=True, stdout=subprocess.DEVNULL)
        cpu = cpu_seconds() - before
        log = open(os.path.join(
            folder, "jobs/bench/logs/elasticdl-worker-bench-0.log")).read()
        size = os.path.getsize(file) if timeline else 0
    speed = float(re.search(r"\(([0-9.e+]+) records/s", log).group(1))
    return speed, cpu, size


def show(name, ratios):
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{name:28} {100 * (middle - 1):+6.2f} %  quartiles "
          f"{100 * (low - 1):+.2f} to {100 * (high - 1):+.2f}, all "
          f"{100 * (min(ratios) - 1):+.2f} to {100 * (max(ratios) - 1):+.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("--rounds: at least 2, for a spread")
    run(args, 1, timeline=False)  # compiles the model
    start = min(run(args, 1, timeline=False)[1] for _ in range(2))
    slower, more_cpu, speeds = [], [], []
    size = 0
    for number in range(args.rounds):
        results = {}
        for timeline in (number % 2 == 0, number % 2 == 1):
            results[timeline] = run(args, args.steps, timeline)
        (speed, cpu, size), (plain_speed, plain_cpu, _) = (
            results[True], results[False])
        slower.append(plain_speed / speed)
        more_cpu.append((cpu - start) / (plain_cpu - start))
        speeds.append(plain_speed)
        print(f"with: {speed:.0f} records/s, {cpu:.2f} s of CPU; without: "
              f"{plain_speed:.0f} records/s, {plain_cpu:.2f} s", flush=True)
    step = 1e6 * BATCH / statistics.median(speeds)
    print(f"{args.rounds} pairs of {args.steps} steps of {step:.0f} us, load "
          f"{os.getloadavg()[0]:.1f}, start {start:.2f} s of CPU, timeline of "
          f"{size / 1e6:.1f} MB")
    show("time of a step", slower)
    show("CPU time of the whole job", more_cpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
