#!/bin/sh
# Create .venv and install Urna with the extras named: tools/setup.sh [EXTRA,EXTRA...]
# Needs nothing but a Python from 3.11 to 3.13; does nothing when everything is there.
set -eu
cd "$(dirname "$0")/.."
extras=${1:-}

suits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

find_python() {
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if command -v "$python" >/dev/null && suits "$python"; then
            echo "$python"
            return
        fi
    done
    echo "error: Urna needs Python 3.11, 3.12 or 3.13; set PYTHON to one" >&2
    exit 1
}

if ! suits .venv/bin/python; then
    python=$(find_python)
    # Debian keeps venv in a package of its own.
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        echo "$python has no venv module; installing it with apt-get" >&2
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        if ! { command -v apt-get >/dev/null && apt-get update -qq &&
            apt-get install -y -qq "python$version-venv"; } >&2; then
            echo "error: $python cannot create environments; install its venv package" >&2
            exit 1
        fi
    fi
    echo "creating .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv
fi

stamp=.venv/.installed-$(echo "$extras" | tr ',' '-')
if [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ]; then
    exit 0
fi
echo "installing urna${extras:+[$extras]} into .venv (a few minutes the first time)" >&2
.venv/bin/python -m pip install -qq --disable-pip-version-check \
    --constraint constraints.txt --editable ".${extras:+[$extras]}" >&2
touch "$stamp"
