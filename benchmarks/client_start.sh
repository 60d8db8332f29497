#!/usr/bin/env bash
# Time of `elasticdl --help` compared with `true`: medians of 41 alternating runs.
set -euo pipefail
bin=${1:-build/bin}
measure() {  # microseconds of one run
  local start=$EPOCHREALTIME
  "$@" > /dev/null
  local end=$EPOCHREALTIME
  echo $(((${end/./} - ${start/./})))
}
for _ in $(seq 41); do
  measure "$bin/elasticdl" --help >&3
  measure /bin/true >&4
done 3> >(sort -n | sed -n 21p | sed 's/^/elasticdl --help, median microseconds: /') \
  4> >(sort -n | sed -n 21p | sed 's/^/true, median microseconds:             /')
wait
