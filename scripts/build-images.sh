#!/usr/bin/env bash
# Builds the images of docker/Dockerfile with the docker command.
#   scripts/build-images.sh --prefix=REGISTRY/NAME [options]
# builds NAME:TAG (the worker image, which has everything) and NAME:TAG-control.
#   --prefix=NAME        e.g. localhost:5000/elasticdl
#   --tag=TAG            default: latest
#   --prebuilt[=DIR]     use the programs in DIR, from `make install PREFIX=DIR`
#                        (default: install build/ now); takes a minute, instead
#                        of compiling inside Docker
#   --base=IMAGE         BASE_IMAGE, default: debian:bookworm
#   --network=NAME       network of the RUN commands, e.g. host
#   --build-arg=A=x      passed on (http_proxy=…, GEN_DATA=yes); may be repeated
#   --push               push both
set -euo pipefail
cd "$(dirname "$0")/.."

prefix= tag=latest prebuilt= install= push=
args=()
for argument in "$@"; do
  value=${argument#*=}
  case "$argument" in
    --prefix=*) prefix=${value%/} ;;
    --tag=*) tag=$value ;;
    --prebuilt) prebuilt=1 ;;
    --prebuilt=*) prebuilt=1 install=$value ;;
    --base=*) args+=(--build-arg "BASE_IMAGE=$value") ;;
    --network=*) args+=(--network "$value") ;;
    --build-arg=*) args+=(--build-arg "$value") ;;
    --push) push=1 ;;
    -h | --help)
      sed -n '2,/^set /{/^# */!d;s/^# \{0,1\}//;p}' "$0"
      exit 0
      ;;
    *)
      echo "build-images.sh: unknown argument $argument" >&2
      exit 2
      ;;
  esac
done
if [ -z "$prefix" ]; then
  echo "build-images.sh: --prefix=REGISTRY/NAME is missing" >&2
  exit 2
fi

context=.
if [ -n "$prebuilt" ]; then
  # A separate context with the installation and the files the Dockerfile copies.
  context=$(mktemp -d)
  trap 'rm -rf "$context"' EXIT
  mkdir -p "$context/scripts"
  cp scripts/install-deps.sh "$context/scripts/"
  if [ -n "$install" ]; then
    mkdir "$context/prebuilt"
    # Without the precompiled header, which is too large for the image.
    tar -C "$install" --exclude='*.gch' -c . | tar -C "$context/prebuilt" -x
  else
    cmake --install build --prefix "$context/prebuilt" --strip > /dev/null
    rm -rf "$context/prebuilt/share/elasticdl/pch"
  fi
  # For GEN_DATA.
  [ ! -d docker/data ] || { mkdir "$context/docker" && cp -r docker/data "$context/docker/"; }
  args+=(--build-arg PREBUILT=prebuilt)
fi

for target in control worker; do
  image=$prefix:$tag
  [ $target = worker ] || image=$image-$target
  docker build "${args[@]}" --target $target -t "$image" \
    -f docker/Dockerfile "$context"
  [ -z "$push" ] || docker push "$image"
done
docker image ls "$prefix"
