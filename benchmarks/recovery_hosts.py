#!/usr/bin/env python3
"""Deaths of workers on several hosts, with and without a sentinel.

    sudo benchmarks/recovery_hosts.py [--sizes 1,1024] [--kills 20]
                                      [--workers 4] [--bin build/bin]

Each worker is in a network namespace of its own, with process ids, a host name
and shared memory of its own, like a pod of a cluster; the master is in another
one. A random worker is killed and replaced, again and again, in turn together
with its sentinel ("plain") and alone ("sentinel"):

* level: from SIGKILL until the others are a world that is ready to train
* recovery: until the first step that is known to be committed by them

Size: MB of parameters and Adam's state. Needs root, ip and unshare. Leaves
nothing behind; talks to nobody but its own namespaces.
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

from big_model import HERE, SHAPES, first_step

TAG = f"edl{os.getpid()}"
KINDS = ("sentinel", "plain")


def address(host):
    return f"10.78.0.{host}"


class Network:
    """Hosts 1 to n, connected by a bridge in a namespace of its own."""

    def __init__(self):
        self.spaces = []

    def build(self, hosts):
        switch = self.add(f"{TAG}s")
        self.ip("-n", switch, "link", "add", "name", "sw0", "type", "bridge")
        self.ip("-n", switch, "link", "set", "sw0", "up")
        for host in range(1, hosts + 1):
            space = self.add(f"{TAG}h{host}")
            self.ip("link", "add", "eth0", "netns", space, "type", "veth",
                    "peer", "name", f"p{host}", "netns", switch)
            self.ip("-n", switch, "link", "set", f"p{host}", "master", "sw0",
                    "up")
            self.ip("-n", space, "addr", "add", f"{address(host)}/24", "dev",
                    "eth0")
            self.ip("-n", space, "link", "set", "eth0", "up")
            self.ip("-n", space, "link", "set", "lo", "up")

    @staticmethod
    def ip(*args):
        subprocess.run(["ip", *args], check=True)

    def add(self, name):
        self.ip("netns", "add", name)
        self.spaces.append(name)
        return name

    def remove(self):
        for name in self.spaces:
            subprocess.run(["ip", "netns", "del", name])


def on_host(host, argv):
    """A command that runs argv as the first process of a pod."""
    script = (f"hostname host-{host} && mount -t tmpfs tmpfs /dev/shm && "
              "mount -t proc proc /proc && exec \"$@\"")
    return ["ip", "netns", "exec", f"{TAG}h{host}", "unshare", "--pid",
            "--mount", "--uts", "--fork", "--kill-child", "sh", "-c", script,
            "sh"] + argv


def only_child(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read())


class Worker:
    def __init__(self, job, number, host):
        self.number, self.host = number, host
        program = os.path.join(job.bin, "elasticdl-worker")
        argv = [program, f"--worker_id={number}",
                f"--master_addr={address(1)}:50001",
                f"--token_file={job.token}", "--num_threads=1"]
        self.process = job.start(host, argv, f"worker-{number}")

    def pid(self):
        return only_child(self.process.pid)


class Job:
    def __init__(self, args, size):
        self.bin = os.path.abspath(args.bin)
        self.size = size
        self.dir = tempfile.TemporaryDirectory()
        self.token = os.path.join(self.dir.name, "token")
        with open(self.token, "w") as file:
            file.write(os.urandom(16).hex())
        self.seen, self.workers, self.count = [], {}, 0
        width, layers = SHAPES[size]
        events = os.path.join(self.dir.name, "events")
        self.master = self.start(1, [
            os.path.join(self.bin, "elasticdl-master"), "--job_name=hosts",
            f"--state_dir={self.dir.name}", f"--token_file={self.token}",
            "--pod_backend=none", f"--model_zoo={HERE}/zoo",
            "--distribution_strategy=AllreduceStrategy",
            "--model_def=big.custom_model",
            f"--model_params=width={width};layers={layers}",
            "--training_data=synthetic:records=100000,bytes=16",
            "--minibatch_size=32", "--num_epochs=0",
            f"--event_log={events}"], "master")
        while not os.path.exists(events):
            self.check()
            time.sleep(0.05)
        self.events = open(events)

    def start(self, host, argv, log):
        with open(os.path.join(self.dir.name, log), "w") as file:
            return subprocess.Popen(on_host(host, argv), stdout=file,
                                    stderr=file)

    def check(self):
        if self.master.poll() is not None:
            with open(os.path.join(self.dir.name, "master")) as file:
                raise RuntimeError("the master ended: " + file.read()[-2000:])

    def wait(self, what, since=0, timeout=300):
        end = time.time() + timeout
        while time.time() < end:
            for line in self.events:
                self.seen.append(json.loads(line))
            for event in self.seen[since:]:
                if what(event):
                    return event
            self.check()
            time.sleep(0.002)
        raise RuntimeError("timed out; last events: " + str(self.seen[-5:]))

    def add(self, host):
        worker = Worker(self, self.count, host)
        self.workers[self.count] = worker
        self.count += 1

    def wait_members(self, count, since=0):
        """Until so many train, and all of them have the model."""
        world = self.wait(lambda e: e["event"] == "world" and
                          len(e["members"]) == count, since)
        self.wait(first_step(world["generation"]), since)
        # Above --background_join_mb.
        if since and self.size > 4:
            newest = world["members"][-1]
            self.wait(lambda e: e["event"] == "caught_up" and
                      e["worker_id"] == newest, since)

    def stop(self):
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.wait()
        self.master.kill()
        self.master.wait()
        self.dir.cleanup()


def step_ms(job):
    """From the master's own word, between two steps of one world."""
    def look():
        out = subprocess.run(
            ["ip", "netns", "exec", f"{TAG}h1",
             os.path.join(job.bin, "elasticdl"), "top", "--job_name=hosts",
             f"--state_dir={job.dir.name}", "--json"],
            check=True, capture_output=True, text=True)
        return time.time(), json.loads(out.stdout)["step"]
    t0, s0 = look()
    while True:
        time.sleep(3)
        t1, s1 = look()
        if s1 > s0:
            return (t1 - t0) * 1000 / (s1 - s0)


def describe(name, values):
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    print(f"{name:42} p50 {statistics.median(values):7.1f}  p99 {p99:7.1f}"
          f"  n {len(values)}", flush=True)


def run(args, size):
    job = Job(args, size)
    try:
        for i in range(args.workers):
            job.add(i + 2)
        job.wait_members(args.workers)
        step = step_ms(job)
        level = {kind: [] for kind in KINDS}
        recovery = {kind: [] for kind in KINDS}
        for i in range(args.kills):
            # At any moment of a step.
            time.sleep(random.uniform(0.5, 1.5))
            before = len(job.seen)
            victim = random.choice(list(job.workers.values()))
            kind = KINDS[i % 2]
            pid = victim.pid()
            if kind == "plain":
                os.kill(only_child(pid), signal.SIGKILL)
                time.sleep(0.1)
            at = time.time()
            os.kill(pid, signal.SIGKILL)
            world = job.wait(lambda e: e["event"] == "world", before)
            done = job.wait(first_step(world["generation"]), before)
            level[kind].append((world["time"] - at) * 1000)
            recovery[kind].append((done["time"] - at) * 1000)
            victim.process.wait()
            del job.workers[victim.number]
            before = len(job.seen)
            job.add(victim.host)
            job.wait_members(args.workers, before)
        print(f"{size} MB of state, {args.workers} workers on as many hosts "
              f"(ms; a step takes {step:.1f} ms)")
        for kind in KINDS:
            describe(f"  {kind}: SIGKILL -> level", level[kind])
            describe(f"  {kind}: SIGKILL -> next committed step",
                     recovery[kind])
    finally:
        job.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1,1024")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    network = Network()
    try:
        network.build(args.workers + 1)
        for size in args.sizes.split(","):
            run(args, int(size))
    finally:
        network.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
