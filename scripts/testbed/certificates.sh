#!/usr/bin/env bash
# Creates a certificate authority, the certificates and kubeconfigs of the
# cluster's components, and those of a Docker engine with TLS and its clients.
# They are for one cluster, so they are valid for a month.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pki=$conf/pki
docker_tls=$conf/docker-tls
mkdir -p "$pki" "$docker_tls"
cd "$pki"
key() {
  openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
}
# certificate NAME SUBJECT USAGE [ALTERNATIVE NAMES]
certificate() {
  key "$1"
  {
    echo "basicConstraints=CA:FALSE"
    echo "keyUsage=digitalSignature"
    echo "extendedKeyUsage=$3"
    [ -z "${4:-}" ] || echo "subjectAltName=$4"
  } > "$1.ext"
  openssl req -new -key "$1.key" -subj "$2" |
    openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
      -extfile "$1.ext" -out "$1.crt" 2> /dev/null
}
kubeconfig() {
  cat > "$conf/$1.kubeconfig" << END
apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: https://$node_address:6443
    certificate-authority: $pki/ca.crt
users:
- name: $1
  user: {client-certificate: $pki/$1.crt, client-key: $pki/$1.key}
contexts:
- name: testbed
  context: {cluster: testbed, user: $1}
current-context: testbed
END
}

key ca
openssl req -x509 -new -key ca.key -subj /CN=testbed -days 30 -out ca.crt \
  -addext basicConstraints=critical,CA:TRUE \
  -addext keyUsage=critical,keyCertSign,cRLSign
name=kubernetes names=DNS:localhost,DNS:kubernetes
for part in default svc cluster.local; do
  name+=.$part
  names+=,DNS:$name
done
here=IP:127.0.0.1,IP:$node_address
certificate server /CN=kube-apiserver serverAuth "$names,$here,IP:$first_service"
certificate etcd /CN=etcd serverAuth,clientAuth "DNS:localhost,$here"
certificate to-etcd /CN=kube-apiserver clientAuth
certificate to-kubelet /O=system:masters/CN=kube-apiserver clientAuth
certificate admin /O=system:masters/CN=admin clientAuth
certificate controllers /CN=system:kube-controller-manager clientAuth
certificate scheduler /CN=system:kube-scheduler clientAuth
certificate proxy /CN=system:kube-proxy clientAuth
certificate node "/O=system:nodes/CN=system:node:$node_name" \
  serverAuth,clientAuth "DNS:$node_name,$here"
for user in admin controllers scheduler proxy node; do
  kubeconfig $user
done
# The key that signs service account tokens.
key accounts
openssl ec -in accounts.key -pubout -out accounts.pub 2> /dev/null

certificate docker /CN=docker serverAuth "DNS:localhost,IP:127.0.0.1"
certificate docker-client /CN=client clientAuth
# With the names that Docker clients expect.
cp ca.crt "$docker_tls/ca.pem"
cp docker-client.crt "$docker_tls/cert.pem"
cp docker-client.key "$docker_tls/key.pem"
