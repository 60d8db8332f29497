#!/usr/bin/env bash
# Compiles the NCCL plugin with the declarations of the NCCL that Debian 13 has
# (2.22), which is older than the one that a machine with CUDA 13 builds with.
# The header comes from Debian's package, through the mirror that apt uses here,
# and is kept in the cache. Without a mirror, or without CUDA's headers, it says
# so and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=trixie
cache=${XDG_CACHE_HOME:-$HOME/.cache}/elasticdl/nccl-$suite

skip() {
  echo "nccl-headers: skipped: $*"
  exit 0
}

cuda=
for folder in /usr/local/cuda*/include /usr/include; do
  if [ -e "$folder/cuda_runtime_api.h" ]; then cuda=$folder; fi
done
[ -n "$cuda" ] || skip "no cuda_runtime_api.h"

if [ ! -e "$cache/nccl.h" ]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 2>/dev/null | grep '/debian/$' | head -n 1 || true)
  [ -n "$mirror" ] || skip "apt knows no mirror of Debian"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  index=dists/$suite/contrib/binary-amd64/Packages.xz
  curl -sSf -m 60 "$mirror$index" -o "$work/index.xz" || skip "no $mirror$index"
  xz -dc "$work/index.xz" |
    awk -v RS= '/^Package: libnccl-dev\n/' >"$work/package"
  file=$(sed -n 's/^Filename: //p' "$work/package" | head -n 1)
  [ -n "$file" ] || skip "$suite has no libnccl-dev"
  # 110 MB, for its static library; once for each machine.
  curl -sSf -m 600 "$mirror$file" -o "$work/nccl.deb" || skip "no $mirror$file"
  echo "$(sed -n 's/^SHA256: //p' "$work/package" | head -n 1)  $work/nccl.deb" |
    sha256sum -c --quiet -
  mkdir -p "$cache"
  dpkg-deb --fsys-tarfile "$work/nccl.deb" |
    tar -x -O ./usr/include/nccl.h >"$work/nccl.h"
  mv "$work/nccl.h" "$cache/nccl.h"
fi
version=$(sed -n 's/^#define NCCL_VERSION_CODE \([0-9]*\).*/\1/p' "$cache/nccl.h")
# The folder of CUDA may have an nccl.h of its own: the cache comes first.
"${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra -Werror \
  -I collective -isystem "$cache" -isystem "$cuda" collective/nccl/plugin.cc
echo "nccl-headers: the plugin compiles with NCCL $version"
