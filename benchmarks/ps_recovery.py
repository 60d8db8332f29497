#!/usr/bin/env python3
"""Parameter servers that die, and what it costs that nothing is lost.

    benchmarks/ps_recovery.py [--bin build/bin] [--kills 30] [--rounds 5]
                              [--records 100000] [--rows 1000000]

* recovery: from SIGKILL of a server to the next push that it, or whoever took
  over, has applied: with the log alone, and with --ps_backup=1. A push counts
  when the master has committed its records, so the time of one minibatch is in
  it. The first commit of a worker after the kill may be of pushes that were
  acknowledged before it; every push needs all servers, so the second is not.
  The time is that of the first worker that comes so far. Beside it: the longest
  silence of the following 3 s, while a process starts and reads its log or is
  sent its copy. The next kill comes when the server, or every backup, is back.
  With --rows the model is benchmarks/zoo/many_rows.cc with so many embedding
  rows of dim 8 instead of DeepFM with 5,383; how many there are at the end is
  printed.
* cost: records per second of whole jobs, with the log on a disk (--ps_log), on
  /dev/shm (nearly no log), and with backups; interleaved, medians of the
  rounds and their spread

Everything is read from the event log and the audit of the job. Times in the
audit are not written by the master, so this script follows the file; it looks
every millisecond.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time


class Lines:
    """The lines of a file that grows, each once."""

    def __init__(self, path):
        self.path, self.file, self.rest = path, None, ""

    def next(self):
        if self.file is None:
            if not os.path.exists(self.path):
                return []
            self.file = open(self.path)
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        return [json.loads(line) for line in lines]


class Job:
    def __init__(self, args, folder, flags, epochs):
        self.folder = folder
        self.audit = Lines(f"{folder}/audit")
        self.log = Lines(f"{folder}/events")
        self.events = []
        self.process = subprocess.Popen(
            [os.path.join(args.bin, "elasticdl"), "train", "--job_name=bench",
             f"--state_dir={folder}"] + args.model + [
             f"--training_data={args.data}/train", "--minibatch_size=64",
             "--num_threads=1", f"--num_epochs={epochs}", "--num_workers=2",
             "--distribution_strategy=ParameterServerStrategy",
             "--num_ps_pods=2", "--use_async",
             "--relaunch_on_worker_failure=100000",
             f"--event_log={folder}/events",
             f"--ledger_audit={folder}/audit"] + flags,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def commits(self):
        """Records that were committed since the last call."""
        return sum(records for _, records in self.commits_of_workers())

    def commits_of_workers(self):
        """Worker and records of each range since the last call."""
        return [(line["worker_id"], line["end"] - line["begin"])
                for line in self.audit.next() if "begin" in line]

    def look(self):
        self.events += self.log.next()
        return self.events

    def wait(self, what, seconds=120):
        end = time.time() + seconds
        while not what():
            if self.process.poll() is not None or time.time() > end:
                raise RuntimeError("the job ended, or nothing happens")
            time.sleep(0.001)

    def pid(self, server):
        return [e["pid"] for e in self.look() if e["event"] == "pod_started"
                and e["type"] == "ps" and e["id"] == server][-1]

    def backed_up(self):
        last = {}
        for event in self.look():
            if event["event"].startswith("ps_") and "part" in event:
                last[event["part"]] = event["event"]
        return [last.get(part) for part in (0, 1)] == ["ps_backup_current"] * 2

    def rows(self, args):
        """Embedding rows on all servers."""
        answer = subprocess.run(
            [os.path.join(args.bin, "elasticdl"), "top", "--job_name=bench",
             f"--state_dir={self.folder}", "--json"],
            check=True, stdout=subprocess.PIPE).stdout
        return sum(pod["usage"]["rows"] for pod in json.loads(answer)["pods"]
                   if pod["type"] == "ps" and pod["usage"])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def percentiles(times):
    times = sorted(times)
    return (f"p50 {statistics.median(times) * 1e3:.0f} ms, p99 "
            f"{times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3:.0f}"
            f" ms, most {times[-1] * 1e3:.0f} ms ({len(times)} kills)")


def recovery(args, backup):
    times, pauses, gaps = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(args, folder, [f"--ps_backup={backup}"], epochs=100000)
        try:
            job.wait(lambda: job.commits() > 0)
            random.seed(1)
            for _ in range(args.kills):
                # Long enough to count as healthy: its successor starts at
                # once.
                calm = time.time() + 6
                job.wait(lambda: (job.commits(), time.time() > calm)[1])
                if backup:
                    job.wait(job.backed_up)
                # The usual distance of two commits, beside it.
                marks = []
                end = time.time() + 1
                while time.time() < end:
                    if job.commits():
                        marks.append(time.time())
                    time.sleep(0.001)
                gaps += [b - a for a, b in zip(marks, marks[1:])]
                job.commits()
                start = time.time()
                os.kill(job.pid(random.randrange(2)), signal.SIGKILL)
                counts, found, last, later = {}, None, start, 0
                while found is None or time.time() < start + 3:
                    now = time.time()
                    workers = {w for w, _ in job.commits_of_workers()}
                    for worker in workers:
                        counts[worker] = counts.get(worker, 0) + 1
                    if workers:
                        later = max(later, now - last)
                        last = now
                    if found is None and max(counts.values(), default=0) > 1:
                        found = now
                        # What follows is another silence.
                        later = 0
                    if now > start + 60:
                        raise RuntimeError("no commit for a minute")
                    time.sleep(0.001)
                times.append(found - start)
                pauses.append(later)
            if args.rows:
                print(f"rows on the servers: {job.rows(args):,}")
        finally:
            job.stop()
    print(f"{'backup' if backup else 'log':>8}: {percentiles(times)}; longest "
          f"silence after that: {percentiles(pauses)}; between two commits "
          f"otherwise: {percentiles(gaps)}", flush=True)


def rate(args, flags):
    with tempfile.TemporaryDirectory() as folder:
        job = Job(args, folder, flags, epochs=2)
        records, first, last = 0, None, None
        try:
            while job.process.poll() is None:
                new = job.commits()
                if new:
                    last = time.time()
                    # What came before the clock started does not count.
                    records, first = ((records + new, first) if first else
                                      (0, last))
                time.sleep(0.005)
        finally:
            job.stop()
        if job.process.returncode != 0:
            raise RuntimeError(f"{flags}: exit {job.process.returncode}")
        return records / (last - first)


def cost(args):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, \
            tempfile.TemporaryDirectory() as disk:
        jobs = {"log in memory": [f"--ps_log={memory}"],
                "log": [f"--ps_log={disk}"],
                "log and backup": [f"--ps_log={disk}", "--ps_backup=1"]}
        rates = {name: [] for name in jobs}
        for _ in range(args.rounds):
            for name, flags in jobs.items():
                rates[name].append(rate(args, flags))
    base = rates["log in memory"]
    print("| job | records/s (median, spread) | of the first, by round |\n"
          "|---|---|---|")
    for name, values in rates.items():
        ratios = [a / b for a, b in zip(values, base)]
        print(f"| {name} | {statistics.median(values):,.0f} "
              f"({min(values):,.0f} to {max(values):,.0f}) | "
              f"{statistics.median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100000)
    parser.add_argument("--rows", type=int, default=0)
    args = parser.parse_args()
    args.model = (["--model_zoo=benchmarks/zoo", f"--model_params=rows={args.rows}",
                   "--model_def=many_rows.custom_model"] if args.rows else
                  ["--model_zoo=examples",
                   "--model_def=deepfm.deepfm.custom_model"])
    with tempfile.TemporaryDirectory() as data:
        args.data = data
        subprocess.run([os.path.join(args.bin, "elasticdl"), "data", "generate",
                        "frappe", f"--records={args.records}",
                        f"--output={data}"], check=True,
                       stdout=subprocess.DEVNULL)
        if args.kills > 0:
            print("SIGKILL of a server -> next applied push")
            for backup in (0, 1):
                recovery(args, backup)
        if args.rounds > 0:
            cost(args)


if __name__ == "__main__":
    main()
