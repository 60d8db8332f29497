#!/usr/bin/env bash
# Installs the packages of `make deb` in a clean Debian and trains there. Needs
# root and debootstrap; takes some minutes and about 3 GB in FOLDER, which
# is kept if it is given.
#   scripts/deb-test.sh [FOLDER]
# MIRROR: where packages come from; default: as this machine has it.
set -euo pipefail
cd "$(dirname "$0")/.."

given=${1:-}
folder=${given:-$(mktemp -d /tmp/elasticdl-deb-XXXXXX)}
root=$folder/root
packages=(build/deb/elasticdl-client_*.deb build/deb/elasticdl_*.deb)
for package in "${packages[@]}"; do
  [ -f "$package" ] || { echo "deb-test.sh: no $package: make deb" >&2; exit 1; }
done
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap > /dev/null; then
  echo "deb-test.sh: skipped: needs root and debootstrap" >&2
  exit 77
fi

clean_up() {
  umount "$root/proc" "$root/dev/shm" 2> /dev/null || true
  # A folder that was given is left to look at.
  [ -n "$given" ] || rm -rf "$folder"
}
trap clean_up EXIT
debootstrap --variant=minbase bookworm "$root" ${MIRROR:+"$MIRROR"}
# Packages come from where this machine gets them.
if [ -z "${MIRROR:-}" ]; then
  cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/" 2> /dev/null || true
fi
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
cp "${packages[@]}" "$root/tmp/"
chroot "$root" apt-get update -q
chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c \
  'apt-get install -q -y --no-install-recommends /tmp/elasticdl*.deb'
begin=$(date +%s)
chroot "$root" env HOME=/root sh -ec '
  elasticdl doctor
  examples=/usr/share/elasticdl/examples
  elasticdl train --job_name=packaged --model_zoo=$examples \
    --model_def=iris.iris_dnn.custom_model --training_data=$examples/iris/iris_train.csv \
    --validation_data=$examples/iris/iris_test.csv --minibatch_size=16 --num_epochs=20 \
    --num_workers=2 --distribution_strategy=AllreduceStrategy --progress=plain
  elasticdl report --job_name=packaged --output=/tmp/report.html'
echo "deb-test.sh: trained $(($(date +%s) - begin)) s after the packages were installed"
