# Sourced by the scripts of the test bed: paths, progress messages with times, and
# daemons identified by pid and start time.

testbed=${ELASTICDL_TESTBED:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticdl/testbed}
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Debian 12 has the source package of this version.
kubernetes=1.20.2
# Increase the number when build-kubernetes.sh changes the resulting programs.
bin=$testbed/kubernetes-$kubernetes-1
components=(kube-apiserver kube-controller-manager kube-scheduler kubelet
  kube-proxy kubectl)

# Kept from one cluster to the next: what Docker built, what was pushed, what the
# node pulled. (Removing gigabytes may take a minute on file systems that discard
# freed blocks.)
docker_data=$testbed/docker
registry_data=$testbed/registry
containerd_data=$testbed/containerd
# Belongs to one cluster; removed when it is stopped.
state=$testbed/state
conf=$state/conf
run=$state/run
log=$testbed/log

# Addresses that never leave the machine. Pods and services use the usual ranges;
# the node's address is on a bridge without ports.
node_name=testbed
node_bridge=edl-node
node_address=10.99.0.1
pod_bridge=edl-pods
pod_range=10.244.0.0/24
service_range=10.96.0.0/16
first_service=10.96.0.1
registry=127.0.0.1:5000
docker_tls_port=2376

# The runtime to use if a capability is missing: see limited-runc.
cap_sys_resource=24
has_capability() {
  local all
  all=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
  (((0x$all >> $1) & 1))
}

began=${TESTBED_BEGAN:-$EPOCHREALTIME}
export TESTBED_BEGAN=$began
say() {
  printf 'testbed: %6.1f s  %s\n' \
    "$(awk "BEGIN { print $EPOCHREALTIME - $began }")" "$*"
}
# fail MESSAGE [DAEMON]: also prints the end of the daemon's log.
fail() {
  echo "testbed: $1" >&2
  if [ -n "${2:-}" ] && [ -e "$log/$2.log" ]; then
    echo "testbed: the end of $log/$2.log:" >&2
    tail -n 20 "$log/$2.log" >&2
  fi
  exit 1
}
# The machine does not support it: exit with this code and the reason.
readonly cannot=3
cannot() {
  echo "$*"
  exit $cannot
}

# start_time PID: empty if there is no such process or it is a zombie.
start_time() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2> /dev/null) || return 0
  # Fields after the name, which may contain anything: the first is the state, the
  # 20th the start time.
  read -r -a fields <<< "${stat##*) }"
  [ "${fields[0]}" = Z ] || echo "${fields[19]}"
}
# daemon NAME COMMAND...: starts it in its own session, with output to
# $log/NAME.log.
daemon() {
  local name=$1
  shift
  ! alive "$name" || return 0
  setsid "$@" > "$log/$name.log" 2>&1 < /dev/null &
  echo "$! $(start_time $!)" > "$run/$name.pid"
}
pid_of() {
  local pid start
  read -r pid start 2> /dev/null < "$run/$1.pid" && echo "$pid"
}
# The start time guards against stale files: a pid may have been reused.
alive() {
  local pid start
  [ -s "$run/$1.pid" ] || return 1
  read -r pid start < "$run/$1.pid"
  [ -n "$start" ] && [ "$(start_time "$pid")" = "$start" ]
}
# Whether any daemon of a test bed is running.
bed_is_up() {
  local file name
  for file in "$run"/*.pid; do
    name=${file##*/}
    ! alive "${name%.pid}" || return 0
  done
  return 1
}
# stop NAME...: SIGTERM to all, SIGKILL to those still running after 10 seconds.
stop() {
  local name signal tries
  for signal in TERM KILL; do
    for name in "$@"; do
      alive "$name" || continue
      [ $signal = TERM ] || echo "testbed: $name does not exit; sending SIGKILL"
      kill -s $signal "$(pid_of "$name")" 2> /dev/null || true
      # A stopped process handles SIGTERM only after SIGCONT.
      kill -s CONT "$(pid_of "$name")" 2> /dev/null || true
    done
    for name in "$@"; do
      for ((tries = 0; tries < 200; ++tries)); do
        alive "$name" || break
        sleep 0.05
      done
    done
  done
  for name in "$@"; do
    rm -f "$run/$name.pid"
  done
}
# wait_for SECONDS DAEMON COMMAND...: waits until the command succeeds; fails at
# once if the daemon has exited.
wait_for() {
  local deadline=$((SECONDS + $1)) name=$2
  shift 2
  until "$@" > /dev/null 2>&1; do
    alive "$name" || fail "$name exited" "$name"
    [ $SECONDS -lt $deadline ] ||
      fail "$name did not become ready in time ($*)" "$name"
    sleep 0.1
  done
}

# Creates the folders of a new cluster and records what down.sh has to restore or
# remove.
remember_machine() {
  mkdir -p "$conf" "$run" "$log"
  local path sysctls=(vm.overcommit_memory vm.panic_on_oom kernel.panic
    kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes
    net.ipv4.ip_forward net.ipv4.conf.all.route_localnet
    net.bridge.bridge-nf-call-iptables net.bridge.bridge-nf-call-ip6tables)
  sysctl -e "${sysctls[@]}" 2> /dev/null | sed 's/ = /=/' > "$state/sysctls"
  local cgroups=(/sys/fs/cgroup/ /sys/fs/cgroup/*/)
  for path in /etc/docker /etc/cni /opt/cni /run/containerd /run/docker \
    /run/netns /var/lib/cni /var/lib/kubelet /var/lib/dockershim \
    /var/log/containers /var/log/pods "${cgroups[@]/%/kubepods}" \
    "${cgroups[@]/%/docker}"; do
    [ -e "$path" ] || echo "$path"
  done > "$state/absent"
  ls -d /run/netns/* /var/log/pods/* > "$state/present" 2> /dev/null || true
}
