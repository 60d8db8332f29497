#!/usr/bin/env bash
# Starts etcd, the API server, the controllers and the scheduler. Needs
# certificates.sh and the bridge of up.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pki=$conf/pki
etcd=https://127.0.0.1:2379
peers=http://127.0.0.1:2380
mkdir -p -m 700 "$state/etcd"
# No fsync: data lost in a crash of the machine does not matter here.
daemon etcd etcd --name testbed --data-dir "$state/etcd" --unsafe-no-fsync \
  --listen-client-urls $etcd --advertise-client-urls $etcd \
  --listen-peer-urls $peers --initial-advertise-peer-urls $peers \
  --initial-cluster testbed=$peers --client-cert-auth \
  --cert-file "$pki/etcd.crt" --key-file "$pki/etcd.key" \
  --trusted-ca-file "$pki/ca.crt" --logger zap --log-level warn

daemon kube-apiserver "$bin/kube-apiserver" \
  --etcd-servers $etcd --etcd-cafile "$pki/ca.crt" \
  --etcd-certfile "$pki/to-etcd.crt" --etcd-keyfile "$pki/to-etcd.key" \
  --bind-address $node_address --advertise-address $node_address \
  --tls-cert-file "$pki/server.crt" --tls-private-key-file "$pki/server.key" \
  --client-ca-file "$pki/ca.crt" --authorization-mode Node,RBAC \
  --enable-admission-plugins NodeRestriction --allow-privileged \
  --service-account-issuer https://kubernetes.default.svc \
  --service-account-key-file "$pki/accounts.pub" \
  --service-account-signing-key-file "$pki/accounts.key" \
  --service-cluster-ip-range $service_range \
  --kubelet-client-certificate "$pki/to-kubelet.crt" \
  --kubelet-client-key "$pki/to-kubelet.key" \
  --kubelet-preferred-address-types InternalIP --v 1
wait_for 90 kube-apiserver curl -sf --cacert "$pki/ca.crt" \
  --cert "$pki/admin.crt" --key "$pki/admin.key" \
  https://$node_address:6443/readyz

# These exit if the API server is not up yet. With the usual rate limits, parallel
# tests would wait for each other.
common=(--bind-address 127.0.0.1 --port 0 --leader-elect=false
  --kube-api-qps 200 --kube-api-burst 400 --v 1)
as() {
  echo "--kubeconfig=$conf/$1.kubeconfig"
  echo "--authentication-kubeconfig=$conf/$1.kubeconfig"
  echo "--authorization-kubeconfig=$conf/$1.kubeconfig"
}
mapfile -t identity < <(as controllers)
daemon kube-controller-manager "$bin/kube-controller-manager" \
  "${identity[@]}" "${common[@]}" --use-service-account-credentials \
  --service-account-private-key-file "$pki/accounts.key" \
  --pvclaimbinder-sync-period 1s --root-ca-file "$pki/ca.crt" --cluster-signing-cert-file "$pki/ca.crt" \
  --cluster-signing-key-file "$pki/ca.key" \
  --service-cluster-ip-range $service_range
mapfile -t identity < <(as scheduler)
daemon kube-scheduler "$bin/kube-scheduler" "${identity[@]}" "${common[@]}"
wait_for 60 kube-scheduler curl -skf https://127.0.0.1:10259/healthz
wait_for 60 kube-controller-manager "$bin/kubectl" \
  --kubeconfig "$conf/admin.kubeconfig" get serviceaccount default -n default
