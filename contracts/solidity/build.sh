#!/usr/bin/env bash
# Builds the contracts and writes contracts/abi (or the folder given). Run after every change in src/.
set -euo pipefail
into="$(realpath -m "${1:-"$(dirname "${BASH_SOURCE[0]}")/../abi"}")"
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
# Apart from the tests' build: what is compiled together must not depend on who built before. With all that the compiler
# was given and said: slither.sh reads it.
rm -rf out/artifacts
"$FORGE" build --force --skip "test/**" --build-info --ast --out out/artifacts --cache-path cache/artifacts
node tools/artifacts.js out/artifacts "$into"
