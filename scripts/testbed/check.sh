#!/usr/bin/env bash
# Can this machine have a cluster? Ends with 0, or with 3 and the reason on
# standard output. Changes nothing.
#   scripts/testbed/check.sh            what can be known of a bare machine
#   scripts/testbed/check.sh --network  also what needs the packages
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(id -u)" -eq 0 ] || cannot "not root"
release=$(. /etc/os-release && echo "${ID:-} ${VERSION_CODENAME:-}")
[ "$release" = "debian bookworm" ] ||
  cannot "not Debian 12, from which the packages come, but $release"

# Controllers of the first kind have a folder each, the second kind has a list.
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
    cannot "no cgroup can be made in $folder"
  rmdir "$folder/elasticdl-check"
done

unshare --net --mount --pid --fork true 2> /dev/null ||
  cannot "no namespaces can be made"

# Images in three shapes (Docker, registry, containerd) and a compiler's cache.
needed_gb=14
[ -x "$bin/kubectl" ] && needed_gb=10
mkdir -p "$testbed"
free_gb=$(df -BG --output=avail "$testbed" | tail -n 1 | tr -dc 0-9)
[ "$free_gb" -ge $needed_gb ] ||
  cannot "$free_gb GB are free in $testbed, $needed_gb are needed"
memory_mb=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
[ "$memory_mb" -ge 3500 ] || cannot "$memory_mb MB of memory, 3500 are needed"

[ "${1:-}" = --network ] || exit 0

# Of one that is up these are ours.
if [ ! -d "$state" ]; then
  for port in 2376 2379 2380 5000 6443 10249 10250 10256 10257 10259; do
    [ -z "$(ss -Hltn "sport = :$port")" ] ||
      cannot "another program listens at port $port"
  done
fi
in_namespace() {
  unshare --net --mount sh -c "$1" 2> /dev/null
}
in_namespace "ip link add br0 type bridge &&
  ip link add veth0 type veth peer name veth1" ||
  cannot "no bridge or no pair of network devices can be made"
for table in nat filter mangle; do
  in_namespace "iptables -t $table -N A && iptables -t $table -X A" ||
    cannot "iptables cannot be used (table $table)"
done
layers=$(mktemp -d -p "$testbed")
trap 'rm -rf "$layers"' EXIT
mkdir "$layers"/{lower,upper,work,all}
in_namespace "cd $layers && mount -t overlay overlay \
  -o lowerdir=lower,upperdir=upper,workdir=work all" ||
  cannot "overlayfs cannot be mounted in $testbed"
