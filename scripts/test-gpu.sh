#!/usr/bin/env bash
# Runs the tests on real GPUs (label `gpu`) and says on what they ran, which were
# skipped, and why. `make test-gpu` builds them first.
#   scripts/test-gpu.sh [BUILD]
set -uo pipefail
build=${1:-build}
"$build/bin/elasticdl" version
ctest --test-dir "$build" --output-on-failure --no-tests=error -L gpu
code=$?
# GoogleTest prints the reason in the line after "<file>:<line>: Skipped".
# Programs that are skipped as a whole print "skipped: <reason>"; ctest notes them
# as passed.
awk '/^[0-9]+\/[0-9]+ Testing: / { reason = ""; whole = "" }
     /: Skipped$/ { getline; reason = $0 }
     /^skipped: / { whole = substr($0, 10) }
     /^Skip regular expression found/ { ++skipped; ++reasons[reason] }
     /^Test Passed\.$/ {
       if (whole == "") { ++passed } else { ++skipped; ++reasons[whole] }
     }
     END {
       for (reason in reasons) {
         printf "%4d skipped: %s\n", reasons[reason], reason
       }
       printf "%4d passed, %d skipped%s\n", passed, skipped,
              passed == 0 ? ": nothing was tested on a GPU" : ""
     }' "$build/Testing/Temporary/LastTest.log"
exit $code
