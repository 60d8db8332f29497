#!/usr/bin/env python3
"""The cost of deaths and joins: a real job whose workers are killed.

    benchmarks/recovery.py --data DIR [--kills 50] [--bin build/bin]
                           [--model mlp|cnn] [--goodput_rounds 5]
                           [--torchrun_kills 5]

* recovery: from SIGKILL of one of four workers to the first step that is known
  to be committed by the others (the first step of a world is confirmed at once)
* pause of a join: how long the members did not train when the replacement
  joined, as measured by rank 0
* torchrun: the same with four DistributedDataParallel processes: from the kill
  to a step of the processes that torchrun starts instead (Debian's
  python3-torch)
* goodput: records per second in 10 s after a kill, compared with 10 s without
  a kill, alternating, in one job of four workers

Prints one table. Uses only the job's event log and `elasticdl top`.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {"mlp": "mnist.mlp.custom_model",
          "cnn": "mnist.mnist_functional_api.custom_model"}


class Job:
    def __init__(self, args, workers, name):
        self.dir = tempfile.TemporaryDirectory()
        self.events_file = os.path.join(self.dir.name, "events")
        self.bin = args.bin
        self.name = name
        self.seen = []
        self.process = subprocess.Popen(
            [os.path.join(args.bin, "elasticdl"), "train",
             f"--job_name={name}", f"--state_dir={self.dir.name}",
             f"--num_workers={workers}", f"--min_workers=1",
             "--model_zoo=examples", f"--model_def={MODELS[args.model]}",
             f"--training_data={args.data}/train", "--minibatch_size=64",
             "--num_threads=1", "--num_epochs=0",
             f"--device={args.device}", f"--event_log={self.events_file}"],
            stdout=subprocess.DEVNULL)
        while not os.path.exists(self.events_file):
            self.check()
            time.sleep(0.05)
        self.file = open(self.events_file)

    def check(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the job ended: {self.process.returncode}")

    def wait(self, what, since=0, timeout=120):
        """Waits for the first event after position `since` that matches `what`."""
        end = time.time() + timeout
        while time.time() < end:
            for line in self.file:
                self.seen.append(json.loads(line))
            for event in self.seen[since:]:
                if what(event):
                    return event
            self.check()
            time.sleep(0.002)
        raise RuntimeError("timed out; last events: " + str(self.seen[-5:]))

    def wait_members(self, count, since=0):
        return self.wait(lambda e: e["event"] == "world" and
                         len(e["members"]) == count, since)

    def pids(self):
        pids = {}
        for event in self.seen:
            if event["event"] == "pod_started":
                pids[event["id"]] = event["pid"]
        return pids

    def members(self):
        worlds = [e for e in self.seen if e["event"] == "world"]
        return worlds[-1]["members"]

    def kill_one(self):
        victim = random.choice(self.members())
        at = time.time()
        os.kill(self.pids()[victim], signal.SIGKILL)
        return at

    def records(self):
        out = subprocess.run(
            [os.path.join(self.bin, "elasticdl"), "top",
             f"--job_name={self.name}", f"--state_dir={self.dir.name}",
             "--json"], check=True, capture_output=True, text=True)
        return json.loads(out.stdout)["records_done"]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.dir.cleanup()


def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))]


def describe(name, values):
    print(f"{name:44} p50 {statistics.median(values):7.1f}  "
          f"p99 {percentile(values, 99):7.1f}  max {max(values):7.1f}  "
          f"n {len(values)}", flush=True)


def kills_and_joins(args, workers=4):
    job = Job(args, workers, "recovery")
    job.wait_members(workers)
    step_ms = measure_step(job)
    recovery, level, joins = [], [], []
    for _ in range(args.kills):
        position = len(job.seen)
        generation = [e for e in job.seen if e["event"] == "world"][-1][
            "generation"]
        at = job.kill_one()
        step = job.wait(lambda e: e["event"] == "first_step" and
                        e["generation"] > generation, position)
        recovery.append((step["time"] - at) * 1000)
        world = job.wait(lambda e: e["event"] == "world", position)
        level.append((world["time"] - at) * 1000)
        joined = job.wait_members(workers, position)
        joins.append(joined["pause_ms"])
        job.wait(lambda e: e["event"] == "first_step" and
                 e["generation"] == joined["generation"], position)
    job.stop()
    print(f"(ms; a step of this job takes {step_ms:.1f} ms)")
    describe(f"SIGKILL of 1 of {workers} -> next committed step", recovery)
    describe("  of that, until the new world was level", level)
    describe("pause of the members when one joins", joins)


def measure_step(job):
    """Milliseconds per step, from two status queries."""
    def look():
        out = subprocess.run(
            [os.path.join(job.bin, "elasticdl"), "top",
             f"--job_name={job.name}", f"--state_dir={job.dir.name}",
             "--json"], check=True, capture_output=True, text=True)
        return time.time(), json.loads(out.stdout)["step"]
    job.wait(lambda e: e["event"] == "first_step")
    t0, s0 = look()
    time.sleep(3)
    t1, s1 = look()
    return (t1 - t0) * 1000 / max(1, s1 - s0)


def goodput(args):
    """Alternating windows of 10 s, with a kill at the beginning and without."""
    job = Job(args, 4, "goodput")
    job.wait_members(4)
    time.sleep(2)

    def window(kill):
        if kill:
            job.wait_members(4)
            job.kill_one()
        start, before = time.time(), job.records()
        while time.time() - start < 10:
            job.wait(lambda e: True)
            time.sleep(0.1)
        return (job.records() - before) / (time.time() - start)

    calm, killed, ratios = [], [], []
    for i in range(args.goodput_rounds):
        # Alternate which of the two comes first.
        for kill in ((False, True), (True, False))[i % 2]:
            (killed if kill else calm).append(window(kill))
        ratios.append(killed[-1] / calm[-1] * 100)
    job.stop()
    print(f"{'goodput with a kill every 10 s':44} "
          f"{statistics.median(ratios):.1f} %  ({min(ratios):.1f} to "
          f"{max(ratios):.1f}; {statistics.median(killed):.0f} against "
          f"{statistics.median(calm):.0f} records/s)", flush=True)


def torchrun(args):
    """The same model and kill under torchrun, which restarts all processes."""
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen(
            ["/usr/bin/python3",
             os.path.join(os.path.dirname(__file__), "torchrun_job.py"),
             "--launch", args.model, folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        try:
            times, former = [], set()
            for _ in range(args.torchrun_kills):
                times.append(torchrun_kill(job, folder, former))
        finally:
            # torchrun stops its ranks, which have their own sessions.
            job.terminate()
            job.wait()
    describe("torchrun: SIGKILL of 1 of 4 -> next step", times)
    print("  (which is step 1: its state is lost)")


def torchrun_kill(job, folder, former):
    """Milliseconds from the kill of a rank to a step of the next attempt.
    Adds the processes of finished attempts to `former`."""
    pids = torchrun_steps(job, folder, former)
    time.sleep(1)
    at = time.time()
    os.kill(random.choice(sorted(pids)), signal.SIGKILL)
    former.update(pids)
    steps = torchrun_steps(job, folder, former)
    return (min(steps.values()) - at) * 1000


def torchrun_steps(job, folder, former):
    """When each rank's process, except those in `former`, did its first step."""
    end = time.time() + 120
    while time.time() < end:
        steps = {}
        for name in os.listdir(folder):
            if name.endswith(".step") and int(name[:-5]) not in former:
                text = open(os.path.join(folder, name)).read()
                steps[int(name[:-5])] = float(text)
        if len(steps) == 4:
            return steps
        if job.poll() is not None:
            raise RuntimeError(f"torchrun ended: {job.returncode}")
        time.sleep(0.02)
    raise RuntimeError("torchrun did not restart its ranks")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--model", default="mlp", choices=MODELS)
    parser.add_argument("--goodput_rounds", type=int, default=5)
    parser.add_argument("--torchrun_kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    random.seed(args.seed)
    print(f"seed {args.seed}, model {args.model}")
    kills_and_joins(args)
    if args.torchrun_kills > 0:
        torchrun(args)
    if args.goodput_rounds > 0:
        goodput(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
