#!/usr/bin/env bash
# After `make test` has failed: runs the tests that failed three times more, one
# at a time. Succeeds when there are few of them and all pass every time, and
# names them: each is a bug of the product or of the test that has to be found.
#   rerun-failed.sh BUILD-FOLDER TIME
# TIME: when `make test` began (seconds since the epoch). A list of failed tests
# that is older is not of that run: it did not come to the tests.
set -euo pipefail
build=$1
began=$2
most=4
list=$build/Testing/Temporary/LastTestsFailed.log
if [ ! -s "$list" ] || [ "$(stat -c %Y "$list")" -lt "$began" ]; then
  echo "the tests did not run" >&2
  exit 1
fi
count=$(wc -l < "$list")
echo "failed once:"
sed 's/^[0-9]*:/  /' "$list"
if [ "$count" -gt "$most" ]; then
  echo "$count tests failed; up to $most are run again" >&2
  exit 1
fi
ctest --test-dir "$build" --rerun-failed --repeat until-fail:3 \
  --output-on-failure --no-tests=error -LE 'kube|gpu'
