#!/usr/bin/env python3
"""Images per second of one worker, compared with the same model in Python's
torch.

Both use one thread, batch 64 and the same libtorch, alternating (A B A B ...),
so that load on the machine affects both equally. ElasticDL reads, checks,
decodes and shuffles RecordIO files and keeps the ledger; Python indexes a
tensor in memory, which is the fastest it can do.

    benchmarks/single_worker.py --data DIR [--rounds 5] [--bin build/bin]

DIR is the output of `elasticdl data fetch mnist`. The exit code is 1 if a
median ratio is below the target in MODELS.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {
    # name: (model_def, steps per round, minimum ratio)
    "CNN": ("mnist.mnist_functional_api.custom_model", 150, 1.0),
    "MLP 784-128-64-10": ("mnist.mlp.custom_model", 900, 1.2),
}
BATCH = 64


def make_net(name):
    """The network, the shape of an image and the optimizer."""
    import torch
    from torch import nn

    if name == "CNN":
        net = nn.Sequential(
            nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
        return (net, (1, 28, 28),
                torch.optim.Adam(net.parameters(), lr=0.001))
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64),
                        nn.ReLU(), nn.Linear(64, 10))
    return (net, (784,),
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))


def python_round(name, steps):
    """Runs in a separate process: `single_worker.py --python NAME STEPS`."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, shape, optimizer = make_net(name)
    images = torch.rand(60000, *shape)
    labels = torch.randint(0, 10, (60000,))
    order = torch.randperm(60000)

    def run(first, last):
        for step in range(first, last):
            at = (step * BATCH) % (60000 - BATCH)
            index = order[at:at + BATCH]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images[index]),
                                               labels[index])
            loss.backward()
            optimizer.step()
            loss.item()

    run(0, 20)
    start = time.perf_counter()
    run(20, 20 + steps)
    print(steps * BATCH / (time.perf_counter() - start))


def measure_python(name, steps):
    python = "/usr/bin/python3"  # where Debian's python3-torch is
    out = subprocess.run([python, __file__, "--python", name, str(steps)],
                         check=True, capture_output=True, text=True)
    return float(out.stdout)


def measure_elasticdl(args, model_def, steps):
    with tempfile.TemporaryDirectory() as state:
        subprocess.run(
            [os.path.join(args.bin, "elasticdl"), "train",
             "--distribution_strategy=Local", "--job_name=bench",
             f"--state_dir={state}", "--model_zoo=examples",
             f"--model_def={model_def}",
             f"--training_data={args.data}/train", f"--minibatch_size={BATCH}",
             "--num_threads=1", "--num_epochs=0", f"--max_step={steps + 20}"],
            check=True, stdout=subprocess.DEVNULL)
        log = open(os.path.join(
            state, "jobs/bench/logs/elasticdl-worker-bench-0.log")).read()
    # The worker does not count its first steps, and neither do we above.
    return float(re.search(r"\(([0-9.e+]+) records/s", log).group(1))


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--python":
        python_round(sys.argv[2], int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    failed = False
    print(f"{'model':20} {'ElasticDL':>12} {'Python torch':>12} "
          f"{'ratio':>6} {'spread':>13}  want")
    for name, (model_def, steps, want) in MODELS.items():
        measure_elasticdl(args, model_def, 1)  # compiles the model
        ours, theirs, ratios = [], [], []
        for _ in range(args.rounds):
            ours.append(measure_elasticdl(args, model_def, steps))
            theirs.append(measure_python(name, steps))
            ratios.append(ours[-1] / theirs[-1])
        ratio = statistics.median(ratios)
        failed |= ratio < want
        print(f"{name:20} {statistics.median(ours):10.0f}/s "
              f"{statistics.median(theirs):10.0f}/s {ratio:6.2f} "
              f"{min(ratios):6.2f}-{max(ratios):.2f}  >= {want}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
