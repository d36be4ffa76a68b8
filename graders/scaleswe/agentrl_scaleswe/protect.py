"""Files that decide a verdict come from the task, not from the agent.

Put back before the tests run: what the task names in ``restore``; tests that its command or harness names, with the
folder of tests around them (a command that names none: every file named like a test); everything that pytest and the
interpreter read before the first test (``conftest.py``, ``sitecustomize.py``, ``*.pth``, ...); and ``setup.cfg`` and
``pyproject.toml`` when what they say to pytest was changed.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import PurePosixPath

from agentrl.api import FileError, PatchError, Sandbox, Task, changed_paths, restore_paths, show_file
from agentrl_scaleswe.start import checked_out, split_before

_ALWAYS = {
    *("conftest.py", "sitecustomize.py", "usercustomize.py"),
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"),
}
_SHADOWS = {"pytest.py", "unittest.py"}
_TEST_FOLDERS = {"test", "tests", "testing", "spec", "__tests__", "e2e"}
_TEST_FILE = re.compile(r"(^test_.*|.*_tests?|.*[.-](test|spec))\.\w+$|^tests?\.\w+$|.*Tests?\.\w+$")
_WORD = re.compile(r"[^\s'\"=;&|()<>:]+")


async def put_back(sandbox: Sandbox, task: Task, base: str) -> tuple[str, ...]:
    """Restore what decides; the paths that this changed. Raises: PatchError, SandboxError."""
    changed = await changed_paths(sandbox, task.workdir, base)
    decisive = [path for path in changed if decides(path, task)]
    for path in changed:
        if path not in decisive and await _asks_pytest_otherwise(sandbox, task, base, path):
            decisive.append(path)
    return await restore_paths(sandbox, task.workdir, base, decisive)


def decides(path: str, task: Task) -> bool:
    """Whether a changed file of the task's repository decides the verdict."""
    name = PurePosixPath(path).name
    if name in _ALWAYS or name.endswith(".pth") or path in _SHADOWS:
        return True
    harness = task.metadata.get("swepro") or {}
    places = [_plain(place) for place in task.metadata.get("restore", ())]
    places += checked_out(split_before(harness)[1])
    places += map(_with_its_folder, harness.get("selected_test_files", ()))
    # A command may well name the file that the agent is asked to mend: only words that look like tests count.
    words = [word for word in _WORD.findall(task.metadata.get("eval_cmd", "")) if looks_like_test(word)]
    places += map(_with_its_folder, words)
    if any(path == place or path.startswith(place + "/") for place in places):
        return True
    # Without the path of a test, whatever is named like one may be what the runner finds.
    return not any("/" in word or "." in word for word in words) and bool(_TEST_FILE.match(name))


def looks_like_test(path: str) -> bool:
    """Whether a path is a test's by its name or one of its folders'."""
    pure = PurePosixPath(path)
    return bool(_TEST_FILE.match(pure.name)) or any(part.lower() in _TEST_FOLDERS for part in pure.parts)


def _plain(place: str) -> str:
    """``./tests/test_a.py::test_x`` → ``tests/test_a.py``."""
    return str(PurePosixPath(place.partition("::")[0]))


def _with_its_folder(place: str) -> str:
    """The innermost folder of tests around a test (its data and helpers decide too), or the test itself."""
    parts = PurePosixPath(_plain(place)).parts
    folders = [index for index, part in enumerate(parts) if part.lower() in _TEST_FOLDERS]
    return "/".join(parts[: folders[-1] + 1]) if folders else _plain(place)


async def _asks_pytest_otherwise(sandbox: Sandbox, task: Task, base: str, path: str) -> bool:
    if PurePosixPath(path).name not in ("setup.cfg", "pyproject.toml"):
        return False
    try:
        before = await show_file(sandbox, task.workdir, base, path)
    except PatchError:
        before = b""  # the base has no such file
    try:
        after = await sandbox.read_file(f"{task.workdir}/{path}", max_bytes=1 << 20)
    except FileError:
        return True
    return pytest_section(path, before) != pytest_section(path, after)


def pytest_section(path: str, content: bytes) -> object:
    """What a configuration file says to pytest; unreadable files say something that equals nothing else."""
    try:
        text = content.decode()
        if path.endswith(".toml"):
            return tomllib.loads(text).get("tool", {}).get("pytest")
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
        return dict(parser["tool:pytest"]) if parser.has_section("tool:pytest") else None
    except (ValueError, AttributeError, configparser.Error):
        return object()
