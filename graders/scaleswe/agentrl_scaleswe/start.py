"""The start state of a task: made from the image by the task's own commands, the same in every sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentrl.api import Sandbox, Task, reach_start

_CHECKOUT = re.compile(r"git\s+(?:-\S+\s+)*checkout\s+\S+\s+--\s+(?P<paths>.+)")


async def start(sandbox: Sandbox, task: Task, *, timeout_sec: float) -> str:
    """The commit of the start state. Raises: GraderError, SandboxError (see :func:`agentrl.api.reach_start`)."""
    setup, _ = split_before(task.metadata.get("swepro") or {})
    scripts = {"before_repo_set_cmd": setup, "pre_commands": task.metadata["pre_commands"]}
    return await reach_start(sandbox, task, scripts, timeout_sec=timeout_sec)


def split_before(swepro: Mapping[str, Any]) -> tuple[str, str]:
    """``before_repo_set_cmd`` as (what makes the start state, what brings the hidden tests).

    By SWE-bench Pro's convention the last line checks out the tests from the future commit: it waits until the
    agent's patch is applied. Any other last line belongs to the start state.
    """
    lines = [line for line in str(swepro.get("before_repo_set_cmd") or "").splitlines() if line.strip()]
    if lines and _CHECKOUT.search(lines[-1]):
        return "\n".join(lines[:-1]), lines[-1]
    return "\n".join(lines), ""


def checked_out(line: str) -> tuple[str, ...]:
    """The paths that a checkout line brings."""
    found = _CHECKOUT.search(line)
    return tuple(path.strip("'\"") for path in found["paths"].split()) if found else ()
