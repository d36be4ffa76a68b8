"""The text that goes over a line for a verb of ``wired.sh``."""

from __future__ import annotations

import re
import shlex
from functools import cache

from agentrl.tools.rawgit import script


@cache
def _script(*names: str) -> str:
    """These scripts behind each other, without comments."""
    return re.sub(r"(?m)^ *#.*\n", "", "".join(script(name) for name in names))


def bash_script(verb: str, *args: str, keyed: bool = False) -> str:
    """``wired.sh`` as a script for ``sh``. ``keyed``: bash begins with an environment and arguments that do not know the key."""
    text = _script("wired.sh") if verb in ("launch", "watch") else _script("wired.sh", "wired_after.sh")
    if verb == "stop":
        text += f"killall() (\n{_script('killall.sh')}\n)\n"
    if verb in ("watch", "collect", "take", "empty"):
        text += "known || { say lost . && exit; }\n"
    text += '"$_verb" "$@"\n'
    key = "3<<EOF\n$_agentrl_key\nEOF\n" if keyed else "\n"
    return (
        "exec 2>/dev/null\ncommand -v bash >/dev/null || { echo nobash; echo .; exit; }\n"
        "_agentrl_key=$AGENTRL_KEY; unset AGENTRL_KEY\n"
        f"exec bash -p -c {shlex.quote(text)} bash {verb} {shlex.join(args)} {key}"
    )
