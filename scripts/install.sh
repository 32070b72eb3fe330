#!/usr/bin/env bash
# Builds .venv from requirements.lock with Python 3.11; does nothing when it is up to date with the lock and
# pyproject.toml (their checksum is in .venv/installed, written last, so that an interrupted install is redone).
set -euo pipefail
cd "$(dirname "$0")/.."

is_python_311() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

wanted="$(cat requirements.lock pyproject.toml | cksum)"
if [ "$(cat .venv/installed 2>/dev/null)" = "$wanted" ] && is_python_311 .venv/bin/python; then
    exit 0
fi

python=""
for candidate in "${PYTHON:-}" python3.11 python3 python; do
    if [ -n "$candidate" ] && is_python_311 "$candidate"; then
        python="$candidate"
        break
    fi
done
if [ -z "$python" ]; then
    echo "Python 3.11 is missing: install it, or name it as in: make PYTHON=/path/to/python3.11 run" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian and Ubuntu ship venv apart from Python.
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3.11-venv; } >&2 || true
    fi
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        echo "Python's venv is missing: install it (Debian, Ubuntu: sudo apt-get install python3.11-venv)." >&2
        exit 1
    fi
fi

echo "building .venv from requirements.lock (some minutes the first time)"
if is_python_311 .venv/bin/python; then
    rm -f .venv/installed
else
    "$python" -m venv --clear .venv
fi
pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }
# torch first, with what it needs: elsewhere than on CPU-only machines that is more than the lock lists.
pip install -c requirements.lock torch
pip install --no-deps -r requirements.lock
pip install --no-deps --no-build-isolation -e .
echo "$wanted" > .venv/installed
