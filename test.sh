#!/usr/bin/env bash
# All tests: sets itself up, then runs lint, types, import contracts and pytest. Arguments go to pytest (and then only
# pytest runs): ./test.sh tests/unit/tokens -k forest
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/scripts/setup.sh" dev
cd "$here"
PATH="$here/.venv/bin:$PATH"

for tool in git tmux; do # run inside the sandboxes, which show this machine's own programs
    command -v "$tool" >/dev/null && continue
    [ "$(id -u)" = 0 ] || { echo "test.sh: $tool is missing; install it: sudo apt-get install $tool" >&2; exit 1; }
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$tool"
done

if [ $# = 0 ]; then
    python -m agentrl_sglang.install # a real SGLang server in a venv of its own, once
    ruff format --check --quiet .
    ruff check --quiet .
    mypy
    lint-imports --verbose >/dev/null || lint-imports
    set -- --numprocesses=3 --dist=loadfile # more than cores: many tests wait for sandboxes
fi
exec pytest "$@"
