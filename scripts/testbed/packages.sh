#!/usr/bin/env bash
# Installs missing Debian packages that the test bed needs, without starting their
# daemons. Exits with 3 and the reason if packages cannot be installed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=(etcd-server docker.io containerd runc docker-registry
  containernetworking-plugins debootstrap iptables conntrack iproute2 socat
  ethtool ebtables openssl curl python3 gcc libc6-dev util-linux)
# Only needed to build Kubernetes.
complete=1
for component in "${components[@]}"; do
  [ -x "$bin/$component" ] || complete=
done
[ -n "$complete" ] || packages+=(golang-go dpkg-dev)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

mkdir -p "$log"
# Tells packages not to start their daemons.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
options=(-q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
{
  apt-get "${options[@]}" update &&
    apt-get "${options[@]}" install -y --no-install-recommends "${missing[@]}"
} > "$log/packages.log" 2>&1 < /dev/null ||
  cannot "cannot install packages (${missing[*]}): $log/packages.log"
