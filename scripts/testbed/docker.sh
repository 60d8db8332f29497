#!/usr/bin/env bash
# Starts a Docker engine and a registry for it, and creates the images that need
# no base image: a Debian tree, and the pause program that holds a pod's
# namespaces. Needs certificates.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mkdir -p "$docker_data" "$registry_data" "$run" "$conf" "$log"
export DOCKER_HOST=unix://$run/docker.sock
# Listens only on the unix socket and the TLS port. Without bridge and iptables:
# RUN commands have the machine's network or none.
runtime=()
has_capability $cap_sys_resource ||
  runtime=(--add-runtime "limited=$scripts/limited-runc"
    --default-runtime limited)
rm -f "$run/docker.pid.own"
daemon dockerd dockerd -H "$DOCKER_HOST" -H "tcp://127.0.0.1:$docker_tls_port" \
  --tlsverify --tlscacert "$conf/pki/ca.crt" --tlscert "$conf/pki/docker.crt" \
  --tlskey "$conf/pki/docker.key" --data-root "$docker_data" \
  --exec-root "$run/docker" --pidfile "$run/docker.pid.own" --bridge none \
  --iptables=false --ip-forward=false --ip-masq=false "${runtime[@]}"
cat > "$conf/registry.yaml" << END
version: 0.1
log: {level: warn}
storage:
  filesystem: {rootdirectory: $registry_data}
  delete: {enabled: true}
http: {addr: "$registry"}
END
daemon registry docker-registry serve "$conf/registry.yaml"
wait_for 60 dockerd docker version
wait_for 30 registry curl -sf "http://$registry/v2/"

images=$testbed/images
if ! docker image inspect $registry/pause:1 > /dev/null 2>&1; then
  mkdir -p "$images/pause"
  # Waits, and reaps the orphans of a pod.
  cat > "$images/pause/pause.c" << END
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void End(int signal) { _exit(signal == SIGTERM ? 0 : 1); }
static void Reap(int signal) {
  while (signal && waitpid(-1, 0, WNOHANG) > 0) {}
}
int main(void) {
  signal(SIGTERM, End);
  signal(SIGINT, End);
  signal(SIGCHLD, Reap);
  while (1) pause();
}
END
  gcc -static -O1 -s -o "$images/pause/pause" "$images/pause/pause.c"
  printf 'FROM scratch\nCOPY pause /pause\nUSER 65535\nENTRYPOINT ["/pause"]\n' \
    > "$images/pause/Dockerfile"
  docker build -q -t $registry/pause:1 "$images/pause" > "$log/pause.log" 2>&1 ||
    fail "cannot build the image pause" pause
fi
if ! docker image inspect $registry/debian:bookworm > /dev/null 2>&1; then
  say "a Debian tree for images (debootstrap)"
  tree=$images/debian
  rm -rf "$tree"
  mirror=$(sed -nE 's/^URIs: +([^ ]+).*/\1/p' \
    /etc/apt/sources.list.d/debian.sources 2> /dev/null | head -n 1)
  # Without a mirror debootstrap uses its default.
  debootstrap --variant=minbase bookworm "$tree" ${mirror:+"$mirror"} \
    > "$log/debootstrap.log" 2>&1 ||
    cannot "cannot create a Debian tree: $log/debootstrap.log"
  # As in Debian's own images: an interrupted build is repeated anyway.
  echo force-unsafe-io > "$tree/etc/dpkg/dpkg.cfg.d/docker"
  echo 'Acquire::Retries "3";' > "$tree/etc/apt/apt.conf.d/80retries"
  cp /etc/apt/sources.list.d/debian.sources "$tree/etc/apt/sources.list.d/" \
    2> /dev/null && rm -f "$tree/etc/apt/sources.list"
  tar -C "$tree" --exclude='./var/cache/apt/archives/*.deb' \
    --exclude='./var/lib/apt/lists/*' -c . |
    docker import -c 'CMD ["bash"]' - $registry/debian:bookworm \
      > "$log/import.log" 2>&1 || fail "cannot import the Debian tree as an image" import
  rm -rf "$tree"
fi
for image in pause:1 debian:bookworm; do
  docker push -q $registry/$image > "$log/push.log" 2>&1 ||
    fail "cannot push $image" push
done
