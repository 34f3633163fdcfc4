# Sourced by the scripts here: installs the toolchain inside the project if needed, and names forge.
cd "$(dirname "${BASH_SOURCE[0]}")"
if [ ! -d node_modules/@openzeppelin/contracts ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --no-audit --no-fund
fi
FORGE=
for candidate in node_modules/@foundry-rs/forge-*/bin/forge; do
  [ -x "$candidate" ] && FORGE="$PWD/$candidate"
done
if [ -z "$FORGE" ]; then
  echo "no forge binary in node_modules for this platform; remove node_modules and run npm ci, or use Linux on x86-64" >&2
  exit 1
fi
