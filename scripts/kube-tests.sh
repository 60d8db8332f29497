#!/usr/bin/env bash
# Runs the tests labelled kube on the cluster of your kubeconfig. Needs `make
# build`. Each test creates its own namespace (elasticdl-test-…, elasticdl-client-…)
# and removes it; two create PriorityClasses or a PersistentVolume with the same
# prefix. Arguments are passed to ctest, e.g.:  scripts/kube-tests.sh -R HelloWorld
#
#   KUBECONFIG                which cluster (default ~/.kube/config)
#   ELASTICDL_TEST_IMAGE      an image with bash and perl that nodes can pull
#                             (default debian:bookworm)
#   ELASTICDL_TEST_JOB_IMAGE  an image built by `elasticdl zoo init` and `zoo build`
#                             from examples/: mnist/mlp.cc in /model_zoo
#   ELASTICDL_TEST_DATA       folder on the nodes with mnist/train and mnist/test
#                             as `elasticdl data fetch mnist` writes them
#   ELASTICDL_TEST_OUT        folder with the same path on this machine and the
#                             nodes, for event logs and audits
#   ELASTICDL_BASE_IMAGE      the worker image of docker/Dockerfile, in a registry
#                             that the engine (DOCKER_HOST) and the nodes can use
#   ELASTICDL_TEST_APISERVER_PID    see tests/kube/job_node_test.cc
#   ELASTICDL_TEST_DOCKER_TLS, _CERTS    see tests/docker/real_engine_test.cc
#   BUILD_DIR                 default build
#   JOBS                      tests to run in parallel (default 4); tests that need
#                             the whole node always run alone
# Without the three job variables, tests of whole jobs are skipped with a message.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD_DIR:-build}

fail() {
  echo "kube-tests: $*" >&2
  exit 2
}

case ${1:-} in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac

[ -x "$build/bin/elasticdl-cluster" ] || fail "no programs in $build/bin: make build"
if [ "${K8S_TESTS:-}" = False ]; then
  fail "K8S_TESTS=False turns these tests off; unset it"
fi
config=${KUBECONFIG:-$HOME/.kube/config}
[ -r "${config%%:*}" ] || fail "no kubeconfig at ${config%%:*}: set KUBECONFIG"
"$build/bin/elasticdl" list --namespace=default > /dev/null ||
  fail "the cluster of $config cannot be used (see above)"

export ELASTICDL_TEST_IMAGE=${ELASTICDL_TEST_IMAGE:-debian:bookworm}
missing=
for variable in ELASTICDL_TEST_JOB_IMAGE ELASTICDL_TEST_DATA ELASTICDL_TEST_OUT; do
  [ -n "${!variable:-}" ] || missing="$missing $variable"
done
if [ -n "$missing" ]; then
  echo "kube-tests: not set:$missing; tests of whole jobs are skipped (--help)"
else
  [ -d "$ELASTICDL_TEST_OUT" ] && [ -w "$ELASTICDL_TEST_OUT" ] ||
    fail "ELASTICDL_TEST_OUT=$ELASTICDL_TEST_OUT is not a writable folder"
  echo "kube-tests: jobs of $ELASTICDL_TEST_JOB_IMAGE," \
    "data $ELASTICDL_TEST_DATA, output $ELASTICDL_TEST_OUT"
fi
# In parallel, because the tests spend most of their time waiting for pods.
code=0
ctest --test-dir "$build" -L kube --output-on-failure --no-tests=error \
  -j "${JOBS:-4}" "$@" || code=$?
# What they measured, with other tests running in parallel.
grep -h '^measured: ' "$build/Testing/Temporary/LastTest.log" || true
exit $code
