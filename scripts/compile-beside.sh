#!/usr/bin/env bash
# Compiles for `scripts/lint.sh --analysis` and `make asan-ci` with the lowest
# priority. May be killed at any time: they go on where it stopped. Their errors
# are for them to report. CI runs it in parallel with tests.
set -euo pipefail
cd "$(dirname "$0")/.."
renice -n 19 -p $$ > /dev/null
# The kernel shares the processors among sessions first, whatever their nice.
{ echo 19 > /proc/self/autogroup; } 2> /dev/null || true
exec > /dev/null 2>&1
scripts/lint.sh --analysis || true
make asan-ci-build
