#!/usr/bin/env python3
"""What models learn with parameter servers: AUC on generated data.

    benchmarks/ps_quality.py [--bin build/bin] [--records 400000] [--epochs 3]
                             [--kill_every 5] [--seed 1]

Trains DeepFM (frappe) and wide & deep (census) of examples/ with two workers and
two servers, asynchronous and synchronous, undisturbed and with a SIGKILL of a
random worker or server every few seconds. `elasticdl data generate` knows the
best AUC that any model can reach on its data; the last evaluation of each job is
compared with it. Exit code 1 if one is below 0.97 of the best or a job fails.
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ENOUGH = 0.97
MODELS = {"frappe": "deepfm.deepfm.custom_model",
          "census": "census.wide_deep.custom_model"}
MODES = {"asynchronous": ["--use_async"],
         "synchronous": ["--grads_to_wait=2"]}


def generate(args, name, folder):
    """Makes the data; the best AUC."""
    out = subprocess.run(
        [os.path.join(args.bin, "elasticdl"), "data", "generate", name,
         f"--records={args.records}", f"--output={folder}"],
        check=True, capture_output=True, text=True).stdout
    return float(re.search(r"best reachable AUC: ([0-9.]+)", out).group(1))


def read_events(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def running(events):
    """Process ids of the pods."""
    pids = {}
    for event in events:
        if event["event"] == "pod_started":
            pids[event["pod"]] = event["pid"]
        elif event["event"] == "pod_ended":
            pids.pop(event["pod"], None)
    return pids


def kill_somebody(events, choice):
    """SIGKILL to a server or to a worker, evenly; the number of kills."""
    pids = running(events)
    kinds = [[pid for pod, pid in pids.items() if f"elasticdl-{kind}-" in pod]
             for kind in ("ps", "worker")]
    victims = choice.choice(kinds)
    if not victims:
        return 0
    try:
        os.kill(choice.choice(victims), signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def train(args, data, model, mode, kill_every):
    with tempfile.TemporaryDirectory() as folder:
        events = f"{folder}/events"
        process = subprocess.Popen(
            [os.path.join(args.bin, "elasticdl"), "train",
             "--job_name=quality", f"--state_dir={folder}",
             "--model_zoo=examples", f"--model_def={model}",
             "--distribution_strategy=ParameterServerStrategy",
             "--num_workers=2", "--num_ps_pods=2", "--num_threads=1",
             f"--training_data={data}/train", f"--validation_data={data}/test",
             "--minibatch_size=64", f"--num_epochs={args.epochs}",
             f"--event_log={events}"] + mode, stdout=subprocess.DEVNULL)
        choice = random.Random(args.seed)
        kills = 0
        next_kill = time.time() + kill_every
        while process.poll() is None:
            # Not before it trains: the model may have to be compiled.
            all_events = read_events(events) if kill_every else []
            if not any(e["event"] == "first_step" for e in all_events):
                next_kill = time.time() + kill_every
            elif time.time() >= next_kill:
                kills += kill_somebody(all_events, choice)
                next_kill += kill_every
            time.sleep(0.1)
        all_events = read_events(events)
        if process.returncode != 0:
            raise RuntimeError(f"{model} {mode}: {all_events[-1]}")
        took = all_events[-1]["time"] - all_events[0]["time"]
        evaluations = [e for e in all_events if e["event"] == "evaluation"]
        return evaluations[-1]["metrics"]["auc"], kills, took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--records", type=int, default=400000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--kill_every", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    enough = True
    print("| model | mode | kills | seconds | AUC | best | part of it |\n"
          "|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            best = generate(args, name, f"{folder}/{name}")
            for mode, flags in MODES.items():
                for kill_every in (0, args.kill_every):
                    auc, kills, took = train(args, f"{folder}/{name}", model,
                                             flags, kill_every)
                    enough = enough and auc >= ENOUGH * best
                    print(f"| {model.split('.')[1]} | {mode} | {kills} | "
                          f"{took:.0f} | {auc:.4f} | {best:.4f} | "
                          f"{auc / best:.3f} |", flush=True)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
