#!/usr/bin/env bash
# `make bench`: runs all benchmarks, one table each. Takes some minutes; use a
# quiet machine.
#   DATA_DIR  where `elasticdl data fetch` stores data sets
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA_DIR:-$HOME/.cache/elasticdl/data}/mnist
failed=0
echo "== client start"
benchmarks/client_start.sh
echo "== RecordIO scan"
build/benchmarks/recordio_scan || failed=1
echo "== optimizer kernels"
build/benchmarks/optimizer_kernels || failed=1
echo "== one worker compared with Python's torch"
build/bin/elasticdl data fetch mnist --output="$data" > /dev/null
benchmarks/single_worker.py --data "$data" || failed=1
echo "== two workers compared with DistributedDataParallel"
benchmarks/ddp.py --data "$data" || failed=1
echo "== deaths and joins"
benchmarks/recovery.py --data "$data" || failed=1
echo "== cost of elasticity"
benchmarks/elasticity.py --data "$data" || failed=1
echo "== cost of --timeline"
benchmarks/timeline.py --data "$data" || failed=1
build/benchmarks/timeline_spans || failed=1
echo "== all-reduce on one host"
build/bin/allreduce_bench || failed=1
echo "== worlds of many processes"
build/benchmarks/world_start || failed=1
echo "== worlds of many workers"
build/benchmarks/master_scale || failed=1
echo "== cost of a viewer of the page"
build/benchmarks/page_cost --rounds=3 --seconds=5 || failed=1
echo "== tables of parameter servers"
build/benchmarks/ps_table || failed=1
build/benchmarks/ps_table growth || failed=1
echo "== parameter servers over loopback"
build/benchmarks/ps_wire || failed=1
exit $failed
