#!/usr/bin/env bash
# What CI checks in addition to the tests: formatting, banned constructs, clang
# with thread-safety analysis (warnings are errors) and clang-tidy.
#   scripts/lint.sh --quick     only the first two: seconds, nothing is compiled
#   scripts/lint.sh --analysis  only clang
#   scripts/lint.sh --tidy      only clang-tidy, after that
#   scripts/lint.sh --torch     clang-tidy also for src/model and src/worker, which
#                               takes a minute of CPU for each of 9 groups of files
#   TIDY_MINUTES=N              clang-tidy begins no file after so many minutes
set -euo pipefail
cd "$(dirname "$0")/.."
has() {  # has FLAG ARGUMENT...
  local flag=$1
  shift
  [[ " $* " == *" $flag "* ]]
}

quick() {
  echo "lint: formatting"
  scripts/format.sh --check

  echo "lint: banned constructs"
  bad=0
  ban() {  # ban PATTERN MESSAGE PATHSPEC...
    local pattern=$1 message=$2
    shift 2
    if git grep -nE "$pattern" -- "$@"; then
      echo "lint: $message" >&2
      bad=1
    fi
  }
  ban '\b(u?sleep|nanosleep|sleep_for|sleep_until|SleepFor)\(' \
    'no sleeps: wait on a CondVar with a deadline or an event' \
    'src/*.cc' 'src/*.h' 'rendezvous/*' 'collective/*' 'kube/*' 'tests/*.cc'
  ban '\bgetenv\(' 'getenv belongs in src/flags' \
    'src/*.cc' 'src/*.h' ':!src/flags/*' 'rendezvous/*' 'collective/*'
  ban '^ *using namespace ' 'no using-directives' '*.h' '*.cc' \
    ':!src/model/*' ':!tests/model/*'
  git ls-files | while read -r file; do
    if [ -f "$file" ] && [ "$(stat -c %s "$file")" -gt 500000 ]; then
      echo "lint: $file is larger than 500 kB" >&2
      exit 1
    fi
  done || bad=1
  if git grep -nIE '[ 	]+$' -- ':!LICENSE' ':!*.md'; then
    echo "lint: trailing white space" >&2
    bad=1
  fi
  [ "$bad" -eq 0 ]
}

analysis() {
  echo "lint: clang with thread-safety analysis"
  cmake --preset clang > /dev/null
  # Only the product; the tests are compiled with gcc only.
  cmake --build build-clang -j "$(nproc)" --target product
}

tidy() {
  echo "lint: clang-tidy"
  scripts/tidy.py build-clang/compile_commands.json "$(nproc)" \
    ${TIDY_MINUTES:+"--minutes=$TIDY_MINUTES"} \
    $(! has --torch "$@" || echo --torch)
}

if has --quick "$@"; then
  quick
elif has --analysis "$@"; then
  analysis
elif has --tidy "$@"; then
  tidy "$@"
else
  quick
  analysis
  tidy "$@"
fi
echo "lint: ok"
