#!/usr/bin/env bash
# Starts a single-node Kubernetes cluster, a Docker engine and a registry on this
# machine: a bare Debian 12, as root. Everything comes from Debian packages;
# Kubernetes is compiled once from its source package.
#   scripts/testbed/up.sh    (make testbed)
# Exits with 0 and says how to use it; with 3 and the reason if no cluster can run
# on this machine; with 1 and the name of a log if something else is wrong. A
# running test bed is stopped first. Everything is in one folder:
#   ELASTICDL_TESTBED    default ~/.cache/elasticdl/testbed
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$scripts/prepare.sh"
"$scripts/build-kubernetes.sh"
"$scripts/down.sh"

remember_machine
if iptables-save -t nat | grep -q '^:KUBE-'; then
  cannot "another cluster uses the iptables of this machine"
fi
say "certificates"
"$scripts/certificates.sh"
# In the background: creating and pushing a Debian tree takes longer than starting
# the control plane.
say "Docker engine, registry, images"
"$scripts/docker.sh" &
docker=$!
say "control plane"
ip link add $node_bridge type bridge
ip address add $node_address/24 dev $node_bridge
ip link set $node_bridge up
sysctl -qw net.ipv4.ip_forward=1
if ! "$scripts/control-plane.sh"; then
  wait $docker || true
  exit 1
fi
wait $docker
say "node"
"$scripts/node.sh"

cat > "$testbed/env" << END
export KUBECONFIG=$conf/admin.kubeconfig
export DOCKER_HOST=unix://$run/docker.sock
export PATH=$bin:\$PATH
export ELASTICDL_TEST_IMAGE=$registry/debian:bookworm
export ELASTICDL_TEST_APISERVER_PID=$(pid_of kube-apiserver)
export ELASTICDL_TEST_DOCKER_TLS=tcp://127.0.0.1:$docker_tls_port
export ELASTICDL_TEST_DOCKER_CERTS=$conf/docker-tls
END
say "the cluster is up; images go to $registry; logs are in $log"
sed 's/^/  /' "$testbed/env"
say "to use it here: . $testbed/env; to end it: make testbed-down"
