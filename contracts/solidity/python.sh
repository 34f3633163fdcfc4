# Sourced by slither.sh and halmos.sh: installs the pinned Python tools inside the project if needed, and puts them on PATH.
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
if [ ! -f .venv/done ] || [ tools/requirements.txt -nt .venv/done ]; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check --no-input -r tools/requirements.txt
  touch .venv/done
fi
export PATH="$PWD/.venv/bin:$(dirname "$FORGE"):$PATH"
