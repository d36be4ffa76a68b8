"""Which line of a shell script fetches something from the network: sandboxes have none unless they were given one.

A guess by the names of programs, made before anything is paid for: a script can hide a download, and a line found here
may turn out to be harmless where everything is there already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_COMMANDS = re.compile(
    r"""(?:^|[;&|({]|\b(?:then|do|else|sudo|exec|time|\w+=\S*)|\s-m)\s*
    (?:\S*/)?(?:
        (?P<pip>(?:uv\s+)?pip3?\s+(?:\S+\s+)*?(?:install|download|wheel)\b.*)
        | uvx\b | uv\s+(?:sync|run|add|tool)\b | pipx\s+(?:install|run)\b
        | (?:apt|apt-get|yum|dnf|microdnf|zypper)\s+(?:-\S+\s+)*(?:update|install|upgrade|build-dep)\b | apk\s+(?:\S+\s+)*?add\b
        | (?:conda|mamba|micromamba)\s+(?:install|create|update|env\s+(?:create|update))\b
        | npx\b | (?:npm|pnpm)\s+(?:i|ci|install|add|exec)\b | yarn(?:\s+(?:install|add)\b|\s*$)
        | git\s+(?:-[Cc]\s+\S+\s+|-\S+\s+)*(?:clone|fetch|pull|submodule\s+update)\b
        | (?P<http>(?:curl|wget)\b.*)
        | go\s+(?:get|install|mod\s+download)\b | cargo\s+(?:fetch|install)\b | gem\s+install\b | bundle\s+install\b
        | composer\s+(?:install|update|require)\b | (?P<maven>mvnw?\b.*)
    )""",
    re.VERBOSE,
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_HERE = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]|--unix-socket|--version|--help")


def fetching_line(script: str) -> str | None:
    """The first line of a shell script that needs the network, or None. Here-documents and comments are passed over."""
    return next((line for line in _lines(script) if _fetches(line)), None)


def _lines(script: str) -> Iterator[str]:
    ending = ""
    for raw in script.replace("\\\n", " ").splitlines():
        line = raw.strip()
        if ending:
            ending = "" if line == ending else ending
            continue
        if found := _HEREDOC.search(line):
            ending = found[2]
        if line and not line.startswith("#"):
            yield line


def _fetches(line: str) -> bool:
    for found in _COMMANDS.finditer(line):
        if found["pip"]:
            offline = {"--no-index"} & set(found["pip"].split())
            if offline or {"--no-deps", "--no-build-isolation"} <= set(found["pip"].split()):
                continue
        elif (found["http"] and _HERE.search(found["http"])) or (
            found["maven"] and re.search(r"\s(-o|--offline)\b", found["maven"])
        ):
            continue
        return True
    return False
