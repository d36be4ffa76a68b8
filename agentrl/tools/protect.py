"""Files that decide a verdict come from the task, not from the agent.

Here is what decides whatever the task: what test runners and the interpreter read before the first test (``conftest.py``,
``sitecustomize``, ``*.pth``, compiled files), what would stand in for a runner or lies in a virtual environment, what looks
like a test, and what ``setup.cfg`` and ``pyproject.toml`` say to pytest. Which of it a task's own solution may change, and what
else decides, is a grader's to say.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Callable
from pathlib import PurePosixPath

from agentrl.errors import FileError, PatchError
from agentrl.sandbox import Sandbox
from agentrl.tools.patch import changed_paths, patched_paths, restore_paths, show_file

TEST_FOLDERS = frozenset({"test", "tests", "testing", "spec", "__tests__", "e2e"})
TEST_FILE = re.compile(r"(^test_.*|.*_tests?|.*[.-](test|spec))\.\w+$|^tests?\.\w+$|.*Tests?\.\w+$")
_CONFIGURATION = re.compile(
    r"^(conftest|sitecustomize|usercustomize)(\.([\w-]+\.)*(py|so|pyd))?$"
    r"|^(\.?pytest\.(ini|toml)|tox\.(ini|toml)|noxfile\.py|(jest|vitest|karma)\.conf(ig)?\.\w+|\.mocharc(\.\w+)?)$"
)
_COMPILED = (".pth", ".pyc", ".pyo")
# A module of that name at the top would stand in for the one that runs or checks the tests.
_SHADOWS = re.compile(r"^(_?pytest|unittest|pluggy|doctest|nose)(\.[\w.-]+)?$")
_ENVIRONMENTS = {".venv", "venv", "site-packages", "dist-packages"}
_PARTLY = ("setup.cfg", "pyproject.toml")
_TOUCHED = re.compile(r"^(?:(?:---|\+\+\+) [ab]/|rename (?:from|to) )([^\t\n]+)", re.MULTILINE)
_HEADER = re.compile(r"^diff --git a/(.+) b/(.+)$", re.MULTILINE)


def configures_tests(path: str) -> bool:
    """Whether a path is read before the first test, by the name of the file or of one of its folders."""
    return any(map(_CONFIGURATION.match, PurePosixPath(path).parts)) or path.endswith(_COMPILED)


def stands_in(path: str) -> bool:
    """Whether a path would be taken for the test runner, or belongs to an installed environment."""
    parts = PurePosixPath(path).parts
    return bool(_SHADOWS.match(parts[0]) or _ENVIRONMENTS & {*parts})


def looks_like_test(path: str) -> bool:
    """Whether a path is a test's by its name or one of its folders'."""
    pure = PurePosixPath(path)
    return bool(TEST_FILE.match(pure.name)) or any(part.lower() in TEST_FOLDERS for part in pure.parts)


def touched(patch: str) -> frozenset[str]:
    """The paths that a patch names, whoever wrote it."""
    return frozenset({*_TOUCHED.findall(patch), *(path for pair in _HEADER.findall(patch) for path in pair)})


async def put_back(
    sandbox: Sandbox, workdir: str, base: str, patch: bytes, decides: Callable[[str], bool]
) -> tuple[str, ...]:
    """Of what ``patch`` changed since ``base``, restore what ``decides``; the paths that this changed.

    Raises: PatchError, SandboxError.
    """
    changed = await changed_paths(sandbox, workdir, base)
    # What .gitignore names can be brought by force; git does not see it here, and the base has nothing in its place.
    smuggled = [path for path in patched_paths(patch) if path not in changed and decides(path)]
    if smuggled:
        await sandbox.exec(["rm", "-rf", "--", *smuggled], cwd=workdir, timeout_sec=60, idempotent=True)
    decisive = [path for path in changed if decides(path)]
    for path in changed:
        if path not in decisive and await _asks_pytest_otherwise(sandbox, workdir, base, path):
            decisive.append(path)
    return (*await restore_paths(sandbox, workdir, base, decisive), *smuggled)


async def _asks_pytest_otherwise(sandbox: Sandbox, workdir: str, base: str, path: str) -> bool:
    if PurePosixPath(path).name not in _PARTLY:
        return False
    try:
        before = await show_file(sandbox, workdir, base, path)
    except PatchError:
        before = b""  # the base has no such file
    try:
        after = await sandbox.read_file(f"{workdir}/{path}", max_bytes=1 << 20)
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
