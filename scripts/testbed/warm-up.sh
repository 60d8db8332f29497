#!/usr/bin/env bash
# Does the slow first-time work for up.sh and kube-ci.sh in advance, with the
# lowest priority: compiles Kubernetes and installs the images' packages. CI runs
# it in parallel with the compiler. Needs prepare.sh. A running test bed is kept,
# and its engine is used.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mkdir -p "$log"
exec > "$log/warm-up.log" 2>&1
renice -n 19 -p $$ > /dev/null
# The kernel shares the processors among sessions first, whatever their nice.
{ echo 19 > /proc/self/autogroup; } 2> /dev/null || true
ionice -c 3 -p $$ || true

"$scripts/build-kubernetes.sh"
if ! bed_is_up; then
  # Left over from a test bed that was not stopped with down.sh.
  "$scripts/down.sh"
  trap '"$scripts/down.sh"' EXIT
  remember_machine
  "$scripts/certificates.sh"
  "$scripts/docker.sh"
elif ! alive dockerd; then
  say "a test bed without a Docker engine is running; not touching it"
  exit 0
fi
say "packages of the images"
docker -H "unix://$run/docker.sock" build --target packages --network host \
  --build-arg "BASE_IMAGE=$registry/debian:bookworm" \
  -f "$scripts/../../docker/Dockerfile" "$scripts" > "$log/image-packages.log" \
  2>&1 || fail "cannot install the images' packages" image-packages
