#!/usr/bin/env bash
# The first steps of up.sh: whether this machine can have a cluster, and the
# packages. Ends with 3 and the reason when it cannot.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
"$scripts/check.sh"
say "packages"
"$scripts/packages.sh"
"$scripts/check.sh" --network
