#!/usr/bin/env python3
"""Jobs with parameter servers: DeepFM on generated data.

    benchmarks/ps_jobs.py [--bin build/bin] [--records 200000] [--rounds 3]

Records per second of whole jobs, from the first commit to the last, for numbers
of workers and servers, asynchronous and synchronous, beside AllReduce with the
same model and number of workers; interleaved, median of the rounds and their
spread. ps_recovery.py kills servers.

Everything is read from the audit and the event log of the job.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def command(args, folder, name, flags):
    return [os.path.join(args.bin, "elasticdl"), "train", f"--job_name={name}",
            f"--state_dir={folder}", "--model_zoo=examples",
            "--model_def=deepfm.deepfm.custom_model",
            f"--training_data={args.data}/train", "--minibatch_size=64",
            "--num_threads=1", "--relaunch_on_worker_failure=1000",
            f"--event_log={folder}/events", f"--ledger_audit={folder}/audit"
            ] + flags


class Audit:
    """Follows the audit; tells how many records are committed, and when."""

    def __init__(self, path):
        self.path = path
        self.file = None
        self.records = 0
        self.first = self.last = None

    def poll(self):
        if self.file is None:
            if not os.path.exists(self.path):
                return 0
            self.file = open(self.path)
        new = 0
        for line in self.file:
            if not line.endswith("\n"):
                break
            entry = json.loads(line)
            new += entry["end"] - entry["begin"]
        if new:
            now = time.time()
            if self.first is None:
                # What came before the clock started does not count.
                self.first, new = now, 0
            self.last = now
            self.records += new
        return new


def run(args, flags):
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command(args, folder, "bench", flags),
                                   stdout=subprocess.DEVNULL)
        audit = Audit(f"{folder}/audit")
        while process.poll() is None:
            audit.poll()
            time.sleep(0.005)
        audit.poll()
        if process.returncode != 0:
            raise RuntimeError(f"{flags}: exit code {process.returncode}")
        return audit.records / (audit.last - audit.first)


def throughput(args):
    jobs = {}
    for workers in (1, 2, 4):
        jobs[f"AllReduce, {workers} workers"] = [
            "--distribution_strategy=AllreduceStrategy",
            f"--num_workers={workers}"]
        for servers in (1, 2):
            ps = ["--distribution_strategy=ParameterServerStrategy",
                  f"--num_workers={workers}", f"--num_ps_pods={servers}"]
            name = f"{workers} workers, {servers} servers"
            jobs[f"asynchronous, {name}"] = ps + ["--use_async"]
            jobs[f"synchronous, {name}"] = ps + [f"--grads_to_wait={workers}"]
    rates = {name: [] for name in jobs}
    for _ in range(args.rounds):
        for name, flags in jobs.items():
            rates[name].append(run(args, flags + ["--num_epochs=1"]))
    print("| job | records/s (median) | spread |\n|---|---|---|")
    for name, values in rates.items():
        print(f"| {name} | {statistics.median(values):,.0f} | "
              f"{min(values):,.0f} to {max(values):,.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--records", type=int, default=200000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        args.data = data
        subprocess.run([os.path.join(args.bin, "elasticdl"), "data", "generate",
                        "frappe", f"--records={args.records}",
                        f"--output={data}"], check=True,
                       stdout=subprocess.DEVNULL)
        throughput(args)


if __name__ == "__main__":
    main()
