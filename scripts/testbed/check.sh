#!/usr/bin/env bash
# Checks whether a cluster can run on this machine. Exits with 0, or with 3 and
# the reason on standard output. Changes nothing.
#   scripts/testbed/check.sh            checks that need no packages
#   scripts/testbed/check.sh --network  also those that need the packages
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(id -u)" -eq 0 ] || cannot "not root"
release=$(. /etc/os-release && echo "${ID:-} ${VERSION_CODENAME:-}")
[ "$release" = "debian bookworm" ] ||
  cannot "this is $release; the packages are for Debian 12"

# cgroup v1 has a folder for each controller, cgroup v2 a list.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  for controller in cpu cpuset memory pids; do
    grep -qw $controller /sys/fs/cgroup/cgroup.controllers ||
      cannot "no cgroup controller $controller"
  done
  folders=(/sys/fs/cgroup)
else
  folders=()
  for controller in cpu cpuset devices freezer memory pids; do
    [ -d /sys/fs/cgroup/$controller ] ||
      cannot "no cgroup controller $controller"
    folders+=(/sys/fs/cgroup/$controller)
  done
fi
for folder in "${folders[@]}"; do
  mkdir "$folder/elasticdl-check" 2> /dev/null ||
    cannot "cannot create a cgroup in $folder"
  rmdir "$folder/elasticdl-check"
done

unshare --net --mount --pid --fork true 2> /dev/null ||
  cannot "cannot create namespaces"

# For images in three places (Docker, registry, containerd) and a compiler cache.
needed_gb=14
[ -x "$bin/kubectl" ] && needed_gb=10
mkdir -p "$testbed"
free_gb=$(df -BG --output=avail "$testbed" | tail -n 1 | tr -dc 0-9)
[ "$free_gb" -ge $needed_gb ] ||
  cannot "only $free_gb GB free in $testbed, $needed_gb GB needed"
memory_mb=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
[ "$memory_mb" -ge 3500 ] || cannot "only $memory_mb MB of memory, 3500 MB needed"

[ "${1:-}" = --network ] || exit 0

# If a cluster is up, these ports are ours.
if [ ! -d "$state" ]; then
  for port in 2376 2379 2380 5000 6443 10249 10250 10256 10257 10259; do
    [ -z "$(ss -Hltn "sport = :$port")" ] ||
      cannot "another program is listening on port $port"
  done
fi
in_namespace() {
  unshare --net --mount sh -c "$1" 2> /dev/null
}
in_namespace "ip link add br0 type bridge &&
  ip link add veth0 type veth peer name veth1" ||
  cannot "cannot create a bridge or a veth pair"
for table in nat filter mangle; do
  in_namespace "iptables -t $table -N A && iptables -t $table -X A" ||
    cannot "cannot use iptables (table $table)"
done
layers=$(mktemp -d -p "$testbed")
trap 'rm -rf "$layers"' EXIT
mkdir "$layers"/{lower,upper,work,all}
in_namespace "cd $layers && mount -t overlay overlay \
  -o lowerdir=lower,upperdir=upper,workdir=work all" ||
  cannot "cannot mount overlayfs in $testbed"
