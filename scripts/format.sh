#!/usr/bin/env bash
# Formats all C++ and proto files in place. With --check, only lists unformatted
# files and fails if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.proto' |
  xargs -r clang-format "${mode[@]}"
