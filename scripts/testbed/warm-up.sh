#!/usr/bin/env bash
# Does in advance, with the lowest priority, what up.sh and kube-ci.sh need and
# what takes long on a machine that never had a cluster: Kubernetes is compiled,
# the packages of the images are installed. CI runs it beside the compiler.
# Needs prepare.sh. A test bed that is up stays up, and its engine does the work.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mkdir -p "$log"
exec > "$log/warm-up.log" 2>&1
renice -n 19 -p $$ > /dev/null
ionice -c 3 -p $$ || true

"$scripts/build-kubernetes.sh"
if ! bed_is_up; then
  # What a bed left that ended without down.sh.
  "$scripts/down.sh"
  trap '"$scripts/down.sh"' EXIT
  remember_machine
  "$scripts/certificates.sh"
  "$scripts/docker.sh"
elif ! alive dockerd; then
  say "a bed without a Docker engine is up, it is left alone"
  exit 0
fi
say "packages of the images"
docker -H "unix://$run/docker.sock" build --target packages --network host \
  --build-arg "BASE_IMAGE=$registry/debian:bookworm" \
  -f "$scripts/../../docker/Dockerfile" "$scripts" > "$log/image-packages.log" \
  2>&1 || fail "the packages of the images cannot be installed" image-packages
