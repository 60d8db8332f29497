#!/usr/bin/env python3
"""Deaths and joins with a large model.

    benchmarks/big_model.py [--sizes 1,64,1024] [--rounds 5] [--bin build/bin]
                            [--workers 2] [--saves 5] [--loads 5] [--flags=...]

For each size of the state (MB: parameters, Adam's state), one job after the
other, alternating: joiners are given the state in the background, and while all
stand still (--background_join_mb=0). In each job, `rounds` times:

* a worker is added. Ready: from the start of its process until it can enter a
  world. Pause: how long the members did not train, as rank 0 says. Transfer:
  until the new worker trains. Slower: steps per second during the transfer,
  against a time of the same length with the same number of members after it.
* the newest worker is killed (SIGKILL). Level: until the others are a world
  that is ready to train. Recovery: until the first step that is known to be
  committed by them; if they are several, they know it one step later.

Start: from the start of the first worker until the first world is level.

With --saves N, another job per size saves N times, `--save_steps` steps apart:

* held: how long a save kept the training thread from training, as the worker's
  log says (the whole copy, for a state that is copied).
* speed: bytes of the checkpoint by the time that it took, against `dd` with
  fsync of the same number of bytes into the same folder, right after it.

With --loads N, jobs with one worker begin with a checkpoint of that size, N
times with the files in the page cache and N times without:

* speed: bytes of the checkpoint by the time until it was restored, as the
  worker's log says, against `dd` that reads the same files in the same state,
  just before it.
* peak: of the worker's memory, and of the master's.

Peak: of a worker's memory (VmHWM, shared memory included), against the size of
parameters, Adam's state and gradients.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# MB of state: width and number of the layers.
SHAPES = {1: (256, 1), 64: (1024, 5), 256: (2048, 5), 1024: (2048, 21),
          4096: (4096, 21)}


def peak_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return max(int(line.split()[1]) / 1024 for line in file
                   if line.startswith("VmHWM"))


class Job:
    def __init__(self, args, size, background, name, flags=()):
        self.args = args
        self.dir = tempfile.TemporaryDirectory()
        self.name = name
        self.seen = []
        width, layers = SHAPES[size]
        events = os.path.join(self.dir.name, "events")
        command = [
            os.path.join(args.bin, "elasticdl"), "train",
            f"--job_name={name}", f"--state_dir={self.dir.name}",
            f"--num_workers={args.workers}", "--min_workers=1",
            f"--model_zoo={HERE}/zoo", "--model_def=big.custom_model",
            f"--model_params=width={width};layers={layers}",
            "--training_data=synthetic:records=100000,bytes=16",
            f"--minibatch_size={args.minibatch_size}", "--num_threads=1",
            "--num_epochs=0", f"--event_log={events}"] + args.flags
        command += [flag.replace("DIR", self.dir.name) for flag in flags]
        # The smallest state would be copied at once.
        command.append(f"--background_join_mb={0.1 if background else 0}")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not os.path.exists(events):
            self.check()
            time.sleep(0.05)
        self.file = open(events)

    def check(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the job ended: {self.process.returncode}")

    def read(self):
        for line in self.file:
            self.seen.append(json.loads(line))

    def wait(self, what, since=0, timeout=600):
        end = time.time() + timeout
        while time.time() < end:
            self.read()
            for event in self.seen[since:]:
                if what(event):
                    return event
            self.check()
            time.sleep(0.005)
        raise RuntimeError("timed out; last events: " + str(self.seen[-5:]))

    def scale(self, workers):
        subprocess.run(
            [os.path.join(self.args.bin, "elasticdl"), "scale",
             f"--job_name={self.name}", f"--state_dir={self.dir.name}",
             f"--num_workers={workers}"], check=True,
            stdout=subprocess.DEVNULL)

    def status(self):
        out = subprocess.run(
            [os.path.join(self.args.bin, "elasticdl"), "top",
             f"--job_name={self.name}", f"--state_dir={self.dir.name}",
             "--json"], check=True, capture_output=True, text=True)
        return time.time(), json.loads(out.stdout)["step"]

    def pid(self, worker):
        return [e["pid"] for e in self.seen
                if e["event"] == "pod_started" and e["id"] == worker][-1]

    def peak_mb(self):
        world = [e for e in self.seen if e["event"] == "world"][-1]
        return max(peak_of(self.pid(worker)) for worker in world["members"])

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        self.dir.cleanup()


def ready_ms(job, worker):
    def time_of(name, key):
        return [e["time"] for e in job.seen
                if e["event"] == name and e[key] == worker][-1]
    return (time_of("worker_ready", "worker_id") -
            time_of("pod_started", "id")) * 1000


def members(count):
    return lambda e: e["event"] == "world" and len(e["members"]) == count


def first_step(generation):
    return lambda e: (e["event"] == "first_step" and
                      e["generation"] == generation)


def speed(begin, end):
    return max(0.01, end[1] - begin[1]) / (end[0] - begin[0])


def join(job, background, result):
    before = len(job.seen)
    workers = job.args.workers + 1
    job.scale(workers)
    world = job.wait(members(workers), before)
    result["pause"].append(world["pause_ms"])
    result["ready"].append(ready_ms(job, world["members"][-1]))
    begin = job.status()
    if background:
        job.wait(lambda e: e["event"] == "caught_up" and
                 e["worker_id"] == world["members"][-1], before)
    else:
        job.wait(first_step(world["generation"]), before)
    end = job.status()
    result["transfer"].append((time.time() - world["time"]) * 1000)
    if background and end[1] > begin[1]:
        during = speed(begin, end)
        time.sleep(max(1.0, end[0] - begin[0]))
        result["slower"].append((speed(end, job.status()) / during - 1) * 100)
    return world


def kill(job, world, result):
    job.read()
    before = len(job.seen)
    job.scale(job.args.workers)
    at = time.time()
    os.kill(job.pid(world["members"][-1]), signal.SIGKILL)
    after = job.wait(lambda e: e["event"] == "world" and
                     e["generation"] > world["generation"], before)
    step = job.wait(first_step(after["generation"]), before)
    result["level"].append((after["time"] - at) * 1000)
    result["recovery"].append((step["time"] - at) * 1000)


def run(args, size, background):
    name = f"big{size}{'bg' if background else 'stop'}"
    job = Job(args, size, background, name)
    result = {key: [] for key in ("start", "ready", "pause", "transfer",
                                  "slower", "level", "recovery")}
    try:
        world = job.wait(members(args.workers))
        result["start"].append((world["time"] - min(
            e["time"] for e in job.seen if e["event"] == "pod_started")) * 1000)
        job.wait(first_step(world["generation"]))
        begin = job.status()
        time.sleep(args.measure)
        result["step"] = 1000 / speed(begin, job.status())
        for _ in range(args.rounds):
            world = join(job, background, result)
            time.sleep(1)
            kill(job, world, result)
            time.sleep(1)
        result["peak"] = job.peak_mb()
    finally:
        job.stop()
    return result


def dd_seconds(folder, size):
    path = os.path.join(folder, "dd")
    begin = time.time()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M",
                    f"count={max(1, size >> 20)}", "conv=fsync"], check=True,
                   stderr=subprocess.DEVNULL)
    took = time.time() - begin
    os.unlink(path)
    return took


def folder_bytes(path):
    return sum(os.path.getsize(os.path.join(path, name))
               for name in os.listdir(path))


def held_ms(text):
    units = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}
    return sum(float(number) * units[unit] for number, unit in
               re.findall(r"([0-9.]+)(ns|us|ms|m|s)", text))


def saves(args, size):
    job = Job(args, size, True, f"big{size}save",
              ["--checkpoint_dir=DIR/ckpt", "--keep_checkpoint_max=2",
               f"--checkpoint_steps={args.save_steps}"])
    speeds, ratios, seen = [], [], 0
    try:
        for _ in range(args.saves):
            event = job.wait(lambda e: e["event"] == "checkpoint", seen)
            seen = job.seen.index(event) + 1
            size_bytes = folder_bytes(event["path"])
            seconds = event["ms"] / 1000
            speeds.append(size_bytes / seconds / 2**20)
            ratios.append(dd_seconds(job.dir.name, size_bytes) / seconds)
        peak = job.peak_mb()
        held = [held_ms(found) for found in
                log_text(job, r"held training up for (\S+)")]
    finally:
        job.stop()
    text = (f"held {statistics.median(held):.1f} (max {max(held):.1f}) ms  "
            if held else "")
    print(f"{size:5} MB saves      {text}"
          f"speed {statistics.median(speeds):.0f} MB/s, "
          f"{statistics.median(ratios) * 100:.0f} % of dd "
          f"(least {min(ratios) * 100:.0f})  peak {peak:.0f} MB", flush=True)


def log_text(job, pattern):
    found = []
    for root, _, files in os.walk(job.dir.name):
        for name in files:
            if name.endswith(".log"):
                with open(os.path.join(root, name), errors="replace") as file:
                    found += re.findall(pattern, file.read())
    return found


def set_cached(folder, cached):
    os.sync()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            # Works for pages that are on the disk, and needs no root.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while cached and file.read(1 << 20):
                pass


def dd_read_seconds(folder):
    begin = time.time()
    for name in os.listdir(folder):
        subprocess.run(["dd", f"if={os.path.join(folder, name)}",
                        "of=/dev/null", "bs=1M"], check=True,
                       stderr=subprocess.DEVNULL)
    return time.time() - begin


def load(args, size, folder):
    job = Job(args, size, True, f"big{size}load",
              [f"--checkpoint_dir_for_init={folder}", "--keep_state=false"])
    try:
        world = job.wait(members(1))
        job.wait(first_step(world["generation"]))
        master = [e["pid"] for e in job.seen if e["event"] == "job_start"][-1]
        took = log_text(job, r"restored \S+ \(.*\) in (\S+)")
        return held_ms(took[0]) / 1000, job.peak_mb(), peak_of(master)
    finally:
        job.stop()


def loads(args, size):
    args = argparse.Namespace(**{**vars(args), "workers": 1})
    with tempfile.TemporaryDirectory() as folder:
        job = Job(args, size, True, f"big{size}make",
                  [f"--checkpoint_dir={folder}/ckpt", "--checkpoint_steps=2"])
        try:
            path = job.wait(lambda e: e["event"] == "checkpoint")["path"]
        finally:
            job.stop()
        total = folder_bytes(path)
        for cached in (True, False):
            speeds, ratios, workers, masters = [], [], [], []
            for _ in range(args.loads):
                set_cached(path, cached)
                dd = dd_read_seconds(path)
                set_cached(path, cached)
                seconds, worker, master = load(args, size, path)
                speeds.append(total / seconds / 2**20)
                ratios.append(dd / seconds)
                workers.append(worker)
                masters.append(master)
            print(f"{size:5} MB loads      "
                  f"{'page cache' if cached else 'from disk '}  "
                  f"speed {statistics.median(speeds):.0f} MB/s, "
                  f"{statistics.median(ratios) * 100:.0f} % of dd "
                  f"(least {min(ratios) * 100:.0f})  "
                  f"peak {max(workers):.0f} MB of {floor_mb(size):.0f}, "
                  f"master {max(masters):.0f} MB", flush=True)


def floor_mb(size):
    width, layers = SHAPES[size]
    parameters = layers * (width * width + width) + 3 * width + 1
    return parameters * 16 / 2**20


def show(size, background, result):
    floor = floor_mb(size)
    text = "  ".join(
        f"{key} {statistics.median(values):.1f} (max {max(values):.1f})"
        for key, values in result.items()
        if isinstance(values, list) and values)
    print(f"{size:5} MB {'background' if background else 'standing  '} "
          f"step {result['step']:.0f}  {text}  "
          f"peak {result['peak']:.0f} MB of {floor:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1,64,1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minibatch_size", type=int, default=8)
    parser.add_argument("--measure", type=float, default=5,
                        help="seconds in which steps are counted")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--only", choices=["background", "standing", "saves",
                                           "loads"])
    parser.add_argument("--saves", type=int, default=0)
    parser.add_argument("--loads", type=int, default=0)
    parser.add_argument("--save_steps", type=int, default=10)
    parser.add_argument("--flags", nargs="*", default=[])
    args = parser.parse_args()
    print("ms; slower in %", flush=True)
    for size in [int(part) for part in args.sizes.split(",")]:
        for background in (True, False):
            if args.only in ("saves", "loads"):
                continue
            if args.only and background != (args.only == "background"):
                continue
            show(size, background, run(args, size, background))
        if args.saves:
            saves(args, size)
        if args.loads:
            loads(args, size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
