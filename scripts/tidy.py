#!/usr/bin/env python3
"""Runs clang-tidy on the product's files in a compilation database.

    scripts/tidy.py build-clang/compile_commands.json [JOBS]

A clean file is not checked again until its text, a header that it includes, or
the configuration changes: the digest of the preprocessed text is stored in
${XDG_CACHE_HOME:-~/.cache}/elasticdl/tidy. Prints all findings; the exit code is
1 if there are any.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys


def product_files(database):
    """Path in the project -> its entry. Files that include torch (those with its
    precompiled header) are compiled with thread-safety analysis, but not checked
    here: the checks visit all of torch and take 50 s for each of the 32 files."""
    root = os.getcwd() + "/"
    found = {}
    for entry in json.load(open(database)):
        path = os.path.normpath(os.path.join(entry["directory"],
                                             entry["file"]))
        if path.startswith(root):
            path = path[len(root):]
            if (not re.match(r"build|tests/|benchmarks/", path)
                    and "cmake_pch" not in entry["command"]):
                found[path] = entry
    return found


def digest(entry, settings):
    """Digest of everything that clang-tidy sees, including comments (NOLINT) but
    not paths."""
    command = shlex.split(entry["command"])
    if os.path.basename(command[0]) == "ccache":
        command = command[1:]
    output = command.index("-o")
    del command[output:output + 2]
    command = [c for c in command if c not in ("-c", "-MD")]
    for option in ("-MT", "-MF"):
        while option in command:
            at = command.index(option)
            del command[at:at + 2]
    text = subprocess.run(command + ["-E", "-P", "-C"], check=True,
                          cwd=entry["directory"], capture_output=True).stdout
    return hashlib.sha256(settings + text).hexdigest()


def check(path, entry, folder, settings, cache):
    mark = os.path.join(cache, digest(entry, settings))
    if os.path.exists(mark):
        return "clean before", ""
    done = subprocess.run(["clang-tidy", "-p", folder, "--quiet", path],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        return "findings", done.stdout + done.stderr
    open(mark, "w").close()
    return "clean", ""


def main():
    database = sys.argv[1]
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.path.join(home, "elasticdl", "tidy")
    os.makedirs(cache, exist_ok=True)
    settings = subprocess.run(["clang-tidy", "--version"], check=True,
                              capture_output=True).stdout
    settings += open(".clang-tidy", "rb").read()
    counts = {"clean before": 0, "clean": 0, "findings": 0}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(check, path, entry, os.path.dirname(database),
                               settings, cache)
                   for path, entry in sorted(product_files(database).items())]
        for future in concurrent.futures.as_completed(running):
            verdict, text = future.result()
            counts[verdict] += 1
            if text:
                print(text, flush=True)
    if not running:
        sys.exit("tidy: no files in " + database)
    print("tidy: " + ", ".join(f"{n} {k}" for k, n in counts.items()))
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
