#!/usr/bin/env bash
# The first steps of up.sh: checks whether a cluster can run on this machine and
# installs the packages. Exits with 3 and the reason if it cannot.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
"$scripts/check.sh"
say "packages"
"$scripts/packages.sh"
"$scripts/check.sh" --network
