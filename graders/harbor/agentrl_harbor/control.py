"""Where a task's Python tests are, so that its reward can be put to the test (:func:`agentrl.api.believed`).

Known where ``tests/test.sh`` starts pytest or unittest: the files of ``tests`` that those lines name, else all that are
named like tests. With ``environment_mode = "separate"`` the work is data to the verifier, and nothing is put to the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agentrl.api import Control, Targets, Task, looks_like_test

_RUNS = re.compile(r"\b(pytest|py\.test|unittest)\b")


def control_of(task: Task) -> Control | None:
    """What to make fail, or None. Raises: OSError (``tests/test.sh`` is gone)."""
    folder = Path(task.metadata["folder"], "tests")
    lines = (
        "" if task.metadata["separate"] else "\n".join(_running_lines((folder / "test.sh").read_text(errors="replace")))
    )
    if not lines:
        return None
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.py"))]
    named = [path for path in files if Path(path).name in lines] or [path for path in files if looks_like_test(path)]
    return Control(Targets(tests=named)) if named else None


def _running_lines(script: str) -> Iterator[str]:
    for line in script.replace("\\\n", " ").splitlines():
        if _RUNS.search(line) and not line.lstrip().startswith("#"):
            yield line
