#!/usr/bin/env bash
# Removes everything that up.sh set up: processes, containers, mounts, bridges,
# namespaces, iptables rules, kernel settings, folders.
#   scripts/testbed/down.sh            (make testbed-down) keeps compiled programs
#                                      and images for the next time
#   scripts/testbed/down.sh --purge    keeps nothing
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Killed processes may take a moment to leave the cgroup.
remove_cgroup() {
  local tries
  for ((tries = 0; tries < 50; ++tries)); do
    [ -d "$1" ] || return 0
    find "$1" -depth -type d -exec rmdir {} + 2> /dev/null && return 0
    sleep 0.1
  done
}
# rm -rf that does not descend into mounts.
remove() {
  if awk -v below="$1/" 'index($2 "/", below) == 1 { found = 1 }
      END { exit !found }' /proc/mounts; then
    fail "something is still mounted in $1: see /proc/mounts"
  fi
  rm -rf "$1"
}
take_down() {
  say "taking the cluster down"
  # The kubelet first: it would restart what we stop.
  stop kubelet
  local container all=(ctr -a "$run/containerd.sock" -n k8s.io)
  if alive containerd; then
    for container in $("${all[@]}" tasks list -q 2> /dev/null); do
      "${all[@]}" tasks delete --force "$container"
    done
    for container in $("${all[@]}" containers list -q 2> /dev/null); do
      "${all[@]}" containers delete "$container"
    done
  fi > /dev/null 2>&1
  if alive dockerd; then
    export DOCKER_HOST=unix://$run/docker.sock
    docker ps -aq | xargs -r docker rm -f
  fi > /dev/null 2>&1
  stop kube-proxy kube-scheduler kube-controller-manager containerd dockerd \
    registry kube-apiserver
  stop etcd
  # Shim processes outlive containerd.
  pgrep -f "containerd-shim.*-address $run/" | xargs -r kill -KILL

  local path table
  for path in /run/netns/cni-* /var/log/pods/*; do
    if [ ! -e "$path" ] || grep -qFx "$path" "$state/present"; then continue; fi
    case "$path" in
      /run/*) ip netns delete "${path##*/}" ;;
      *) rm -rf "$path" ;;
    esac
  done
  awk -v below="$testbed/" 'index($2, below) == 1 { print $2 }' /proc/mounts |
    sort -r | xargs -r -n 1 umount -l
  local bridge
  for bridge in $pod_bridge $node_bridge; do
    ip link delete $bridge 2> /dev/null
  done
  # Removes chains of Kubernetes and CNI, and rules that refer to them or to our
  # bridges.
  for table in iptables ip6tables; do
    $table-save -c | grep -vE 'KUBE-|CNI-|edl-' | $table-restore -c
  done 2> /dev/null
  while read -r path; do
    case "$path" in
      /sys/fs/cgroup/*) remove_cgroup "$path" ;;
      /run/netns)
        # This is a mount.
        umount "$path" 2> /dev/null
        remove "$path"
        ;;
      *) remove "$path" ;;
    esac
  done < "$state/absent"
  sysctl -q -p "$state/sysctls" > /dev/null 2>&1
  rm -f "$testbed/env"
  remove "$containerd_data/io.containerd.grpc.v1.cri"
  remove "$state"
  say "the cluster is down"
}

[ ! -d "$state" ] || take_down
if [ "${1:-}" = --purge ]; then
  remove "$testbed"
  say "$testbed is removed"
fi
exit 0
