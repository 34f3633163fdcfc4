#!/usr/bin/env bash
# Symbolic proofs: the vault's packed lanes, and totals that never fall, for every input. See test/symbolic.
# Options as of halmos: --contract LanesSymbolic is the quick part.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/python.sh"
# Builds the proofs only, apart from the tests' build. The solver is the yices that pip installed beside halmos.
export FOUNDRY_OUT=out/symbolic FOUNDRY_CACHE_PATH=cache/symbolic FOUNDRY_SRC=test/symbolic FOUNDRY_TEST=test/symbolic
halmos --forge-build-out out/symbolic --no-status --statistics "$@"
