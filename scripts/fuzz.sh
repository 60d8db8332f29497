#!/usr/bin/env bash
# Fuzzes everything that parses input from outside (tests/fuzz) for MINUTES in
# total, starting from the committed corpus. Inputs that break something are
# left in build-fuzz/found, and the exit code is 1.
#   scripts/fuzz.sh MINUTES [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?minutes}
shift
cmake --preset fuzz > /dev/null
cmake --build build-fuzz -j "$(nproc)" --target fuzz_targets
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for corpus in tests/fuzz/corpus/*; do targets+=("$(basename "$corpus")"); done
fi
parallel=$(nproc)
seconds=$((minutes * 60 * parallel / ${#targets[@]}))
[ "$seconds" -ge 5 ] || seconds=5
mkdir -p build-fuzz/found build-fuzz/log
echo "fuzz: ${#targets[@]} targets, $seconds s each, $parallel at a time"
run() {
  local target=$1
  mkdir -p "build-fuzz/corpus/$target"
  # Inputs that take 10 s or 2 GB are bugs too.
  if build-fuzz/tests/fuzz/"fuzz_$target" -max_total_time="$2" -timeout=10 \
    -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/found/$target-" \
    "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" \
    > "build-fuzz/log/$target.log" 2>&1; then
    echo "fuzz: $target: ok," \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' \
        "build-fuzz/log/$target.log") inputs"
  else
    echo "fuzz: $target: FAILED, see build-fuzz/log/$target.log"
    grep -m1 -E 'SUMMARY|check failed|ERROR' "build-fuzz/log/$target.log" || true
    return 1
  fi
}
export -f run
printf '%s\n' "${targets[@]}" \
  | xargs -P "$parallel" -I{} bash -c "run {} $seconds"
