#!/usr/bin/env python3
"""Runs clang-tidy on the product's files in a compilation database.

    scripts/tidy.py build-clang/compile_commands.json [JOBS] [--torch] [--minutes=N]

A clean file is not checked again until its text, a header that it includes, or
the configuration changes: the digest of the preprocessed text is stored in
${XDG_CACHE_HOME:-~/.cache}/elasticdl/tidy. Prints all findings; the exit code is
1 if there are any.

With --torch also the files that include libtorch (src/model, src/worker), in the
groups in which they are compiled (UNITY_BUILD in cmake/ElasticdlHelpers.cmake):
the checks visit all of libtorch's headers, which takes a minute of CPU for each
group, however little the files themselves contain.

With --minutes no file is begun after so many minutes. Those that were committed
last come first; how many were left out is printed.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time


def is_group(path):
    return re.search(r"/Unity/unity_\d+_cxx\.cxx$", path) is not None


def product_files(database, torch):
    """Path in the project -> its entry. Files that include libtorch have its
    precompiled header."""
    root = os.getcwd() + "/"
    found = {}
    for entry in json.load(open(database)):
        path = os.path.normpath(os.path.join(entry["directory"],
                                             entry["file"]))
        if path.startswith(root):
            path = path[len(root):]
            if "cmake_pch" in entry["command"]:
                if torch and (is_group(path) or path.startswith("src/")):
                    found[path] = entry
            elif not re.match(r"build|tests/|benchmarks/", path):
                found[path] = entry
    return found


def commit_times():
    """Path -> when it was last committed; empty without a repository."""
    log = subprocess.run(["git", "log", "--format=@%ct", "--name-only"],
                         capture_output=True, text=True).stdout
    times = {}
    when = 0
    for line in log.splitlines():
        if line.startswith("@"):
            when = int(line[1:])
        elif line:
            times.setdefault(line, when)
    return times


def sources(path):
    """The file itself, or the files of a group."""
    if not is_group(path):
        return [path]
    root = os.getcwd() + "/"
    return [p[len(root):] for p in re.findall(r'#include "([^"]+)"',
                                              open(path).read())]


def in_order(files, minutes):
    """The newest first if there may be no time for all. Else the groups: one that
    is started last would run alone at the end."""
    times = commit_times()

    def key(item):
        path, entry = item
        newest = max(times.get(p, 0) for p in sources(path))
        group_first = not minutes and "cmake_pch" not in entry["command"]
        return group_first, -newest, path
    return sorted(files.items(), key=key)


def digest(entry, settings):
    """Digest of everything that clang-tidy sees, including comments (NOLINT) but
    not paths. A group's precompiled header counts as text like any other."""
    command = shlex.split(entry["command"])
    if os.path.basename(command[0]) == "ccache":
        command = command[1:]
    output = command.index("-o")
    del command[output:output + 2]
    command = [c for c in command if c not in ("-c", "-MD")]
    if "-include-pch" in command:
        at = command.index("-include-pch") - 1
        assert command[at] == command[at + 2] == "-Xclang", command
        del command[at:at + 4]
    for option in ("-MT", "-MF"):
        while option in command:
            at = command.index(option)
            del command[at:at + 2]
    text = subprocess.run(command + ["-E", "-P", "-C"], check=True,
                          cwd=entry["directory"], capture_output=True).stdout
    return hashlib.sha256(settings + text).hexdigest()


def check(path, entry, folder, settings, cache, deadline):
    if time.monotonic() > deadline:
        return "left out", ""
    mark = os.path.join(cache, digest(entry, settings))
    if os.path.exists(mark):
        return "clean before", ""
    command = ["clang-tidy", "-p", folder, "--quiet"]
    if is_group(path):
        # The sources are included: report findings in them, as in headers, and
        # not the includes themselves.
        command += ["--checks=-bugprone-suspicious-include",
                    r"--header-filter=/src/.*\.(h|cc)$"]
    done = subprocess.run(command + [path],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        return "findings", done.stdout + done.stderr
    open(mark, "w").close()
    return "clean", ""


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    minutes = [float(a[len("--minutes="):]) for a in sys.argv
               if a.startswith("--minutes=")]
    deadline = time.monotonic() + 60 * minutes[0] if minutes else float("inf")
    torch = "--torch" in sys.argv
    database = arguments[0]
    jobs = int(arguments[1]) if len(arguments) > 1 else os.cpu_count()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.path.join(home, "elasticdl", "tidy")
    os.makedirs(cache, exist_ok=True)
    settings = subprocess.run(["clang-tidy", "--version"], check=True,
                              capture_output=True).stdout
    settings += open(".clang-tidy", "rb").read()
    counts = {"clean before": 0, "clean": 0, "findings": 0, "left out": 0}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(check, path, entry, os.path.dirname(database),
                               settings, cache, deadline)
                   for path, entry in in_order(product_files(database, torch),
                                             minutes)]
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
