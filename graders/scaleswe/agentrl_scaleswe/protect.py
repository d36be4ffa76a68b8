"""What decides a task's verdict besides :mod:`agentrl.tools.protect`'s rules, and is put back before the tests run.

What the task names in ``restore``; tests that its command or harness names, with the folder of tests around them (a
command that names none: every file named like a test); whatever else the command names or its runner reads (``make``: the
Makefile), unless the task's own solution changes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from agentrl.api import TEST_FILE, TEST_FOLDERS, Task, configures_tests, looks_like_test, stands_in, touched
from agentrl_scaleswe.control import F2P_FILE
from agentrl_scaleswe.start import checked_out, split_before

_RUNNERS = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm"), ("package.json", ".npmrc", ".yarnrc", ".yarnrc.yml")),
}
_SUFFIXES = {*"py js ts tsx jsx mjs cjs go rs rb java kt php sh c cpp cs exs".split()}  # noqa: SIM905
_WORD = re.compile(r"[^\s'\"=;&|()<>:]+")


def decides(path: str, task: Task) -> bool:
    """Whether a changed file of the task's repository decides the verdict."""
    if configures_tests(path):
        return True
    if stands_in(path):
        top = PurePosixPath(path).parts[0]
        return not any(place.startswith(f"{top}/") for place in _solution(task))
    harness = task.metadata.get("swepro") or {}
    places = [_plain(place) for place in task.metadata.get("restore", ())]
    places += [F2P_FILE] if "f2p_script" in task.metadata else _judges(task)
    places += checked_out(split_before(harness)[1])
    places += map(_with_its_folder, harness.get("selected_test_files", ()))
    # A command may well name the file that the agent is asked to mend: only words that look like tests count.
    named = [*map(_as_path, _WORD.findall(task.metadata.get("eval_cmd", "")))]
    words = [word for word in named if looks_like_test(word)]
    places += map(_with_its_folder, words)
    if any(path == place or path.startswith(place + "/") for place in places):
        return True
    # Without the path of a test, whatever is named like one may be what the runner finds.
    return not any("/" in word or "." in word for word in words) and bool(TEST_FILE.match(PurePosixPath(path).name))


def _as_path(word: str) -> str:
    """``tests.test_a.TestB`` → ``tests/test_a.py``: the dotted name of a test as unittest takes it. Else the word itself."""
    parts = word.split(".")
    tests = [index for index, part in enumerate(parts) if re.match(r"^test_|^tests?$", part)]
    if len(parts) < 2 or not tests or not all(map(str.isidentifier, parts)) or parts[-1] in _SUFFIXES:
        return word
    return "/".join(parts[: tests[-1] + 1]) + ("" if parts[tests[-1]] in TEST_FOLDERS else ".py")


def _judges(task: Task) -> Iterator[str]:
    """What the command names or its runner reads, when the task's solution is known and leaves it alone."""
    solution = _solution(task)
    words = set(map(_plain, _WORD.findall(task.metadata.get("eval_cmd", ""))))
    read = {name for word in words for name in _RUNNERS.get(word, ())}
    if solution:
        yield from (words | read) - solution - {"."}


def _solution(task: Task) -> frozenset[str]:
    """What the task's own solution touches, where it is known."""
    return touched(task.metadata.get("gold_patch", ""))


def _plain(place: str) -> str:
    """``./tests/test_a.py::test_x`` → ``tests/test_a.py``."""
    return str(PurePosixPath(place.partition("::")[0]))


def _with_its_folder(place: str) -> str:
    """The innermost folder of tests around a test (its data and helpers decide too), or the test itself."""
    parts = PurePosixPath(_plain(place)).parts
    folders = [index for index, part in enumerate(parts) if part.lower() in TEST_FOLDERS]
    return "/".join(parts[: folders[-1] + 1]) if folders else _plain(place)
