#!/usr/bin/env bash
# Builds Kubernetes from Debian's source package unless it is built already: five
# minutes on two cores. Needs packages.sh. Exits with 3 and the reason if the
# source cannot be downloaded. Two concurrent runs build it only once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

complete() {
  local component
  for component in "${components[@]}"; do
    [ -x "$bin/$component" ] || return 1
  done
}
! complete || exit 0
work=$testbed/build
tree=$work/go/src/k8s.io/kubernetes

# Uses the source packages of this machine's package servers. In separate
# folders, so that the machine's own package lists do not change.
download_source() {
  local apt=$work/apt file
  rm -rf "$apt"
  mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
  for file in /etc/apt/sources.list.d/*.sources; do
    grep -qs debian "$file" || continue
    sed 's/^Types:.*/Types: deb-src/' "$file" \
      > "$apt/sources/$(basename "$file")"
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    grep -qsE '^deb .*debian' "$file" || continue
    sed -nE 's/^deb (.*debian)/deb-src \1/p' "$file" \
      > "$apt/sources/$(basename "$file" .list)-src.list"
  done
  local options=(-q -o Dir::Etc::sourcelist=/dev/null
    -o Dir::Etc::sourceparts="$apt/sources" -o Dir::State::lists="$apt/lists"
    -o Dir::Cache="$apt/cache" -o Acquire::Retries=3)
  apt-get "${options[@]}" update &&
    (cd "$work/source" &&
      apt-get "${options[@]}" source --download-only kubernetes)
}
compile() {
  dpkg-source -x "$work"/source/kubernetes_*.dsc "$tree"
  cd "$tree"
  local found
  found=$(dpkg-parsechangelog -S Version)
  [[ $found == *"$kubernetes"-* ]] ||
    fail "Debian's source is $found, these scripts expect $kubernetes"

  local reflect2=vendor/github.com/modern-go/reflect2
  rm -rf "$work/newer" $reflect2/*.go $reflect2/*.s
  dpkg-deb -x "$work"/deb/*.deb "$work/newer"
  cp "$work"/newer/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} \
    $reflect2/

  # Tests often wait for pods to end. A kubelet reports this in batches, up to 10
  # seconds later, and sometimes only after it has removed containers, once a
  # minute. Only these intervals are changed.
  shorten pkg/kubelet/status/status_manager.go \
    'const syncPeriod = ' '10 \* time.Second' '1 * time.Second'
  shorten pkg/kubelet/kubelet.go \
    'ContainerGCPeriod = ' 'time.Minute' '2 * time.Second'

  # Go 1.19 does not accept the source's go.mod; without modules it still uses
  # vendor/.
  export GOPATH=$work/go GOCACHE=$work/gocache GO111MODULE=off CGO_ENABLED=0
  export GOFLAGS= GOTOOLCHAIN=local
  generate_openapi
  local package flags="-s -w"
  for package in component-base/version client-go/pkg/version; do
    package=k8s.io/kubernetes/vendor/k8s.io/$package
    flags+=" -X $package.gitVersion=v$kubernetes -X $package.gitMajor=1"
    flags+=" -X $package.gitMinor=20 -X $package.gitTreeState=archive"
  done
  mkdir -p "$work/bin"
  # In one command, so that shared code is compiled once. Without cloud providers.
  go build -trimpath -tags providerless -ldflags "$flags" -o "$work/bin/" \
    "${components[@]/#/./cmd/}"
}
shorten() {
  sed -i "s/\($2\)$3/\1$4/" "$1"
  grep -q "$2${4//\*/\\*}" "$1" || fail "no '$2' in $1: another source?"
}
# The only generated file missing in the source.
generate_openapi() {
  local prefix=k8s.io/kubernetes generator=$work/openapi-gen inputs
  go build -o "$generator" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  inputs=$(grep -RlE --include='*.go' '^// *\+k8s:openapi-gen=' \
    cmd pkg plugin test third_party vendor/k8s.io |
    grep -vE '/(code-generator|sample-[a-z]*|testdata)/' |
    xargs -n 1 dirname | LC_ALL=C sort -u | sed "s,^,$prefix/," | paste -sd,)
  "$generator" --logtostderr -i "$inputs" -O zz_generated.openapi \
    -p $prefix/pkg/generated/openapi -r "$work/violations.txt" \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt
}

# In a subshell: after ||, set -e would not stop it at the first error.
if [ "${1:-}" = --compile ]; then
  compile
  exit
fi
mkdir -p "$testbed" "$log"
exec 9> "$testbed/build.lock"
flock 9
! complete || exit 0
rm -rf "$work/go"
mkdir -p "$work/source" "$work/deb" "$(dirname "$tree")"
if ! ls "$work"/source/kubernetes_*.dsc > /dev/null 2>&1; then
  say "source package of Kubernetes"
  download_source > "$log/source.log" 2>&1 ||
    cannot "cannot download the source of Kubernetes: $log/source.log"
fi
# With Go 1.18 and later the API server crashes with "nil pointer dereference" in
# reflect2 1.0.1 from the source; Debian's package of it is newer.
if ! ls "$work"/deb/*.deb > /dev/null 2>&1; then
  (cd "$work/deb" && apt-get -q -o Acquire::Retries=3 download \
    golang-github-modern-go-reflect2-dev) > "$log/reflect2.log" 2>&1 ||
    cannot "cannot download the package reflect2: $log/reflect2.log"
fi

say "compiling Kubernetes $kubernetes (five minutes; $log/kubernetes.log)"
"${BASH_SOURCE[0]}" --compile > "$log/kubernetes.log" 2>&1 ||
  fail "Kubernetes does not compile" kubernetes
mkdir -p "$bin"
mv "${components[@]/#/$work/bin/}" "$bin/"
# 1.5 GB; the downloaded source is kept.
chmod -R u+w "$work/go"
rm -rf "$work/go" "$work/gocache" "$work/bin" "$work/newer" "$work/apt"
say "Kubernetes $kubernetes is compiled"
