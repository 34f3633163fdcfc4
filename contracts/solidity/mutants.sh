#!/usr/bin/env bash
# Breaks the contracts one place at a time and demands that a test notices; options as in tools/mutate.js.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
node tools/mutate.js "$FORGE" "$@"
