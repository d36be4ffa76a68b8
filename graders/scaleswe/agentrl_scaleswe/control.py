"""Where a task's Python tests are, so that its pass can be put to the test (:func:`agentrl.api.believed`).

Known for ``f2p_script`` (its file), ``swepro`` (the selected files) and an ``eval_cmd`` of plain commands (see
:func:`agentrl.api.read_command`). Elsewhere the exit code alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentrl.api import Control, Targets, Task, patched_paths, read_command

F2P_FILE = "test_fail_to_pass.py"


def control_of(task: Task, patch: bytes) -> Control | None:
    """How the pass of ``patch`` can be put to the test, or None."""
    found = targets(task)
    if found is None:
        return None
    return Control(found, tuple(f"{task.workdir}/{name}" for name in patched_paths(patch)))


def targets(task: Task) -> Targets | None:
    """Where the task's Python tests are; None when that cannot be told."""
    match task.metadata:
        case {"f2p_script": str()}:
            return Targets(scripts=[F2P_FILE])
        case {"swepro": Mapping() as harness}:
            selected = [name for name in harness["selected_test_files"] if name.endswith(".py")]
            return Targets(scripts=selected) if selected else None
        case {"eval_cmd": str(command)}:
            return read_command(command)
    return None
