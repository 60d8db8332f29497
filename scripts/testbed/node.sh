#!/usr/bin/env bash
# Starts containerd, the kubelet and kube-proxy and waits until the node is ready.
# Needs the control plane and the registry.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pki=$conf/pki
pause=$registry/pause:1
socket=$run/containerd.sock
runc=/usr/sbin/runc
has_capability $cap_sys_resource || runc=$scripts/limited-runc

mkdir -p "$conf/cni" "$state/kubelet" "$conf/manifests"
cat > "$conf/containerd.toml" << END
version = 2
root = "$containerd_data"
state = "$run/containerd"
[grpc]
  address = "$socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "$state/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause"
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$conf/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = "$runc"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."$registry"]
  endpoint = ["http://$registry"]
END
cat > "$conf/cni/10-pods.conflist" << END
{"cniVersion": "0.4.0", "name": "testbed", "plugins": [
  {"type": "bridge", "bridge": "$pod_bridge", "isGateway": true,
   "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$run/addresses",
            "ranges": [[{"subnet": "$pod_range"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
# If the machine drops forwarded packets (another Docker does that), pods could
# not reach each other.
iptables -I FORWARD -i $pod_bridge -o $pod_bridge -j ACCEPT
daemon containerd containerd --config "$conf/containerd.toml"
wait_for 60 containerd ctr -a "$socket" version

# Without rate limits for calls and pulls: parallel tests must not wait for each
# other. No eviction for lack of disk space until the disk is really full.
: > "$conf/resolv.conf"
cat > "$conf/kubelet.yaml" << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_address
healthzBindAddress: $node_address
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $pki/node.crt
tlsPrivateKeyFile: $pki/node.key
cgroupDriver: cgroupfs
failSwapOn: false
resolvConf: $conf/resolv.conf
oomScoreAdj: 0
staticPodPath: $conf/manifests
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1%
  imagefs.available: 1%
END
# Otherwise it looks for a Docker engine for 5 seconds, and for the metadata
# service of Amazon's machines.
export AWS_EC2_METADATA_DISABLED=true
daemon kubelet "$bin/kubelet" --config "$conf/kubelet.yaml" \
  --kubeconfig "$conf/node.kubeconfig" --hostname-override $node_name \
  --node-ip $node_address --root-dir "$state/kubelet" \
  --cert-dir "$state/kubelet/pki" --docker "unix://$run/docker.sock" \
  --volume-plugin-dir "$state/kubelet/plugins" --container-runtime remote \
  --container-runtime-endpoint "unix://$socket" \
  --pod-infra-container-image $pause --v 2
# Keep the kernel's own sizes of the connection tracking table.
daemon kube-proxy "$bin/kube-proxy" --kubeconfig "$conf/proxy.kubeconfig" \
  --hostname-override $node_name --proxy-mode iptables \
  --cluster-cidr $pod_range --oom-score-adj 0 \
  --conntrack-max-per-core 0 --conntrack-min 0 \
  --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0 \
  --metrics-bind-address 127.0.0.1:10249 \
  --healthz-bind-address 127.0.0.1:10256 --v 1
kubectl=("$bin/kubectl" --kubeconfig "$conf/admin.kubeconfig")
wait_for 90 kubelet "${kubectl[@]}" get node $node_name
wait_for 90 kubelet "${kubectl[@]}" wait --for=condition=Ready --timeout=5s \
  node/$node_name
served() {
  iptables -t nat -S KUBE-SERVICES | grep -q $first_service/32
}
wait_for 60 kube-proxy served
