#!/usr/bin/env bash
# Writes docs/flags.md from the programs' --help output.
#   scripts/flags-doc.sh [BIN_DIR]    default: build/bin
#   scripts/flags-doc.sh --check [BIN_DIR]   only checks whether it is up to date
set -euo pipefail
cd "$(dirname "$0")/.."
check=false
if [ "${1:-}" = --check ]; then
  check=true
  shift
fi
bin=${1:-build/bin}
# The text must not contain paths of this machine.
export HOME=/home/user XDG_STATE_HOME='' XDG_CACHE_HOME=''

# section PROGRAM ARGUMENT...: its help without the lines common to all.
section() {
  local program=$1
  shift
  echo '```'
  "$bin/$program" "$@" --help | sed "s|$HOME|~|g" |
    awk '/^General:/ {skip = 1} /^A boolean flag/ {next} !skip {print}' |
    sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
  echo '```'
}

# only GROUP...: filters these groups from a help text.
only() {
  awk -v groups="$1" '
    BEGIN {n = split(groups, list, "|"); for (i = 1; i <= n; ++i) want[list[i] ":"] = 1}
    /^[^ ].*:$/ {shown = ($0 in want)}
    shown {print}'
}

# commands [COMMAND]: the names of all commands, or of the parts of one. From the
# help, so that none can be forgotten.
commands() {
  "$bin/elasticdl" "$@" --help |
    awk '/^Commands:/ {on = 1; next} on && !/^  / {exit} on {print $1}'
}

generate() {
  cat docs/flags.head.md
  echo
  echo '## elasticdl train'
  echo
  section elasticdl train
  echo
  echo '## elasticdl evaluate, predict'
  echo
  echo 'The flags of `train` except those that only concern training. In addition, for `predict`:'
  echo
  echo '```'
  # The lines of one flag: from its name to the next name.
  "$bin/elasticdl" predict --help |
    awk '/^  --/ {shown = /--prediction_(data|outputs_processor|output_dir)=/} /^[^ ]/ || /^$/ {shown = 0} shown'
  echo '```'
  echo
  echo '## elasticdl-master, elasticdl-worker, elasticdl-ps'
  echo
  echo 'All flags of `train`, `evaluate` and `predict`, and:'
  echo
  echo '```'
  for program in elasticdl-master elasticdl-worker elasticdl-ps; do
    echo "$program"
    "$bin/$program" --help | only 'This program' | sed '1d'
  done | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
  echo '```'
  for command in $(commands); do
    case $command in train | evaluate | predict) continue ;; esac
    local parts
    parts=$(commands "$command")
    if [ -z "$parts" ]; then
      command_section "$command"
    fi
    for part in $parts; do
      command_section "$command" "$part"
    done
  done
}

# command_section COMMAND [PART]
command_section() {
  echo
  echo "## elasticdl $*"
  echo
  section elasticdl "$@"
}

if $check; then
  generate | diff -u docs/flags.md - || {
    echo 'docs/flags.md is out of date: run scripts/flags-doc.sh' >&2
    exit 1
  }
else
  generate > docs/flags.md.new
  mv docs/flags.md.new docs/flags.md
fi
