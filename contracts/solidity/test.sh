#!/usr/bin/env bash
# Unit, fuzz and invariant tests, then the gas figures against the committed snapshots/.
# To take new figures: FORGE_SNAPSHOT_CHECK=false ./test.sh, and commit snapshots/.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
"$FORGE" test
FORGE_SNAPSHOT_CHECK="${FORGE_SNAPSHOT_CHECK:-true}" "$FORGE" test --isolate --no-match-path "none" --match-path "test/gas/*"
