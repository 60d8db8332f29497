#!/usr/bin/env bash
# Runs the tests labelled kube on a cluster on this machine: starts the cluster,
# builds images of the programs in build/, runs the tests, stops the cluster.
#   scripts/testbed/kube-ci.sh [CTEST ARGUMENTS]    (make test-kube)
# Exits with the result of the tests, or with 0 and "skipped: REASON" if no
# cluster can run here or K8S_TESTS=False.
#   DATA_DIR             where `elasticdl data fetch` stores its data
#   ELASTICDL_KEEP_BED=1 keeps the cluster running
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$scripts/../.."
data=${DATA_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticdl/data}

skip() {
  echo "kube tests skipped: $1"
  exit 0
}
[ "${K8S_TESTS:-}" != False ] || skip "K8S_TESTS=False"
[ -x build/bin/elasticdl-worker ] || fail "no programs in build/bin: make build"

code=0
output=$("$scripts/prepare.sh") || code=$?
[ $code -ne $cannot ] || skip "${output##*$'\n'}"
[ $code -eq 0 ] || fail "the machine could not be prepared: $output"

out=
finish() {
  [ -z "$out" ] || rm -rf "$out"
  [ -n "${ELASTICDL_KEEP_BED:-}" ] || "$scripts/down.sh"
}
trap finish EXIT
# Stop the cluster when this script ends or is killed.
trap 'exit 130' INT TERM

mkdir -p "$log"
"$scripts/up.sh" | tee "$log/up.log" || code=$?
[ $code -ne $cannot ] || skip "$(tail -n 1 "$log/up.log")"
[ $code -eq 0 ] || exit $code
. "$testbed/env"

# quietly LOG COMMAND...
quietly() {
  local name=$1
  shift
  "$@" > "$log/$name.log" 2>&1 || fail "failed: $*" "$name"
}
# The same for downloads, with a second attempt.
fetch() {
  local name=$1
  shift
  "$@" > "$log/$name.log" 2>&1 || quietly "$name" "$@"
}
say "images of the programs"
prefix=$registry/elasticdl
fetch images scripts/build-images.sh --prebuilt --prefix=$prefix --tag=ci \
  --base=$registry/debian:bookworm --network=host --push
export ELASTICDL_BASE_IMAGE=$prefix:ci

say "image of a model zoo"
out=$(mktemp -d -p "$testbed" out.XXXXXX)
chmod 0777 "$out"
elasticdl=$PWD/build/bin/elasticdl
mkdir -p "$out/zoo/mnist"
cp examples/mnist/mlp.cc "$out/zoo/mnist/"
export ELASTICDL_TEST_JOB_IMAGE=$registry/zoo-mnist:ci
(
  cd "$out/zoo"
  quietly zoo-init "$elasticdl" zoo init --base_image=$ELASTICDL_BASE_IMAGE
  quietly zoo-build "$elasticdl" zoo build --image=$ELASTICDL_TEST_JOB_IMAGE .
  quietly zoo-push "$elasticdl" zoo push $ELASTICDL_TEST_JOB_IMAGE
)
say "images to the node"
# Pull now: a one-minute pull during the first tests would make them time out.
for image in "$ELASTICDL_TEST_IMAGE" "$ELASTICDL_TEST_JOB_IMAGE"; do
  quietly pull ctr -a "$run/containerd.sock" -n k8s.io images pull \
    --plain-http "$image"
done

say "data"
[ -e "$data/mnist/manifest.json" ] ||
  fetch data "$elasticdl" data fetch mnist --output="$data/mnist"
export ELASTICDL_TEST_DATA=$data ELASTICDL_TEST_OUT=$out

say "tests"
# A node with a few shared cores may be too slow once in a while: a first failure
# is printed, a second one counts.
scripts/kube-tests.sh --repeat until-pass:2 "$@" 2>&1 | tee "$log/tests.log" || code=$?
say "tests ended with code $code"
# Everything they need is there, so no test may be skipped.
if grep '\*\*\*Skipped' "$log/tests.log"; then
  fail "these tests were skipped; the reasons are in build/Testing/Temporary"
fi
exit $code
