#!/usr/bin/env bash
# Builds ElasticDL on Debian 13 with libtorch-cuda 2.6, NCCL 2.22 and Open MPI 5,
# in a chroot on this machine (as root; 3 GB to download, 15 GB of disk, no
# Docker), and runs the tests of MPI there. For changes to what depends on the
# versions of libtorch, NCCL or MPI. CI does not run it: it takes half an hour.
#   scripts/debian13.sh FOLDER          makes or reuses the chroot in FOLDER
#   scripts/debian13.sh FOLDER COMMAND  runs a command in it, in the sources
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:?scripts/debian13.sh FOLDER [COMMAND...]}
shift
suite=trixie
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
  'Created-By: Packages' 2> /dev/null | grep '/debian/$' | head -n 1)}
: "${mirror:?apt knows no mirror of Debian; set MIRROR}"

# A mount namespace: whatever happens, nothing stays mounted.
in_chroot() {
  unshare --mount --pid --fork --propagation private \
    bash -c 'set -e
      root=$1
      shift
      mount -t proc proc "$root/proc"
      mount --rbind /dev "$root/dev"
      mount --rbind /sys "$root/sys"
      exec chroot "$root" "$@"' - "$root" "$@"
}

if [ ! -e "$root/etc/debian_version" ]; then
  debootstrap --variant=minbase --components=main,contrib,non-free \
    "$suite" "$root" "$mirror"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/tmp/given/DEBIAN"
if [ ! -e "$root/var/lib/elasticdl-packages" ]; then
  # The driver and cuDNN are not free; see docker/Dockerfile.gpu.
  printf '%s\n' 'Package: elasticdl-given' 'Version: 1' 'Architecture: all' \
    'Maintainer: ElasticDL' \
    'Provides: libcuda1 (= 999), libcuda.so.1 (= 999), nvidia-cudnn (= 9.1)' \
    'Description: what Debian cannot ship' > "$root/tmp/given/DEBIAN/control"
  in_chroot sh -ec 'dpkg-deb --build /tmp/given > /dev/null
    dpkg -i /tmp/given.deb
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
      --no-install-recommends \
      g++ cmake ninja-build mold ccache pkg-config make git ca-certificates \
      libtorch-cuda-dev libnccl-dev nvidia-cuda-toolkit libopenblas0-openmp \
      libgloo-cuda-dev libopenmpi-dev openmpi-bin \
      libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev \
      libabsl-dev libspdlog-dev nlohmann-json3-dev libyaml-cpp-dev \
      libcpp-httplib-dev libhwy-dev libsnappy-dev zlib1g-dev libpng-dev \
      libssl-dev libcurl4-openssl-dev libgtest-dev libgmock-dev
    apt-get clean'
  cp docker/cudnn-stub.sh "$root/tmp/"
  in_chroot sh -ec '/tmp/cudnn-stub.sh; ldconfig'
  touch "$root/var/lib/elasticdl-packages"
fi

# What is committed, so that a build cannot depend on anything else. Files that
# have not changed are not touched, and not compiled again.
mkdir -p "$root/src"
GIT_INDEX_FILE=$(realpath "$root")/var/lib/elasticdl-index \
  git --work-tree="$root/src" read-tree --reset -u HEAD
if [ $# -gt 0 ]; then
  in_chroot env -C /src "$@"
  exit
fi
in_chroot env -C /src sh -ec '
  cmake --preset release > configure.log 2>&1 || { cat configure.log; exit 1; }
  cmake --build build --target programs elasticdl_mpi_plugin \
    elasticdl_nccl_plugin collective_tests contracts_tests \
    integration_mpi_test -- -k 0
  build/bin/elasticdl version
  ctest --test-dir build --output-on-failure --no-tests=error \
    -R "mpi|Mpi|collective/|contracts/"'
