#!/usr/bin/env bash
# Rebuilds the contracts from source and fails if what is committed in contracts/abi differs by one byte.
set -euo pipefail
here="$(realpath "$(dirname "${BASH_SOURCE[0]}")")"
fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
"$here/build.sh" "$fresh" >"$fresh.log" 2>&1 || { cat "$fresh.log" >&2; rm -f "$fresh.log"; exit 1; }
rm -f "$fresh.log"
if diff -rq "$fresh" "$here/../abi"; then
  echo "contracts/abi is what contracts/solidity/src compiles to"
else
  echo "contracts/abi is not what contracts/solidity/src compiles to: run contracts/solidity/build.sh and commit contracts/abi" >&2
  exit 1
fi
