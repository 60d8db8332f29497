#!/usr/bin/env bash
# Unpacks prometheus and promtool of Debian's package into the cache and prints
# the folder, for the tests that check our metrics with them. Installing the
# package would start a service. Without the package it says so on stderr and
# prints nothing; those tests are skipped then.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/elasticdl/prometheus
if [ ! -x "$cache/usr/bin/promtool" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  if ! (cd "$work" && apt-get -q download prometheus > log 2>&1); then
    echo "prometheus: skipped: $(tail -n 1 "$work/log")" >&2
    exit 0
  fi
  mkdir -p "$cache"
  dpkg-deb -x "$work"/prometheus_*.deb "$cache"
fi
echo "$cache/usr/bin"
