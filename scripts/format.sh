#!/usr/bin/env bash
# Formats all C++ and proto files in place; with --check, only says which are
# not formatted and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.proto' |
  xargs -r clang-format "${mode[@]}"
