"""Files that decide a verdict come from the task, not from the agent.

Put back before the tests run: what the task names in ``restore``; tests that its command or harness names, with the
folder of tests around them (a command that names none: every file named like a test); whatever else the command names or
its runner reads (``make``: the Makefile), unless the task's own solution changes it; everything that test runners and the
interpreter read before the first test (``conftest.py``, ``sitecustomize``, ``*.pth``, compiled files, what lies in a virtual
environment); and ``setup.cfg`` and ``pyproject.toml`` when what they say to pytest was changed.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath

from agentrl.api import (
    FileError,
    PatchError,
    Sandbox,
    Task,
    changed_paths,
    patched_paths,
    restore_paths,
    show_file,
)
from agentrl_scaleswe.control import F2P_FILE
from agentrl_scaleswe.start import checked_out, split_before

_ALWAYS = re.compile(
    r"^(conftest|sitecustomize|usercustomize)(\.[\w.-]+)?$"
    r"|^(\.?pytest\.(ini|toml)|tox\.(ini|toml)|noxfile\.py|(jest|vitest|karma)\.conf(ig)?\.\w+|\.mocharc(\.\w+)?)$"
)
_COMPILED = (".pth", ".pyc", ".pyo")
# A module of that name at the top would stand in for the one that runs or checks the tests.
_SHADOWS = re.compile(r"^(_?pytest|unittest|pluggy|doctest|nose)(\.[\w.-]+)?$")
_ENVIRONMENTS = {".venv", "venv", "site-packages", "dist-packages"}
_RUNNERS = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm"), ("package.json", ".npmrc", ".yarnrc", ".yarnrc.yml")),
}
_TEST_FOLDERS = {"test", "tests", "testing", "spec", "__tests__", "e2e"}
_TEST_FILE = re.compile(r"(^test_.*|.*_tests?|.*[.-](test|spec))\.\w+$|^tests?\.\w+$|.*Tests?\.\w+$")
_SUFFIXES = {
    "py",
    "js",
    "ts",
    "tsx",
    "jsx",
    "mjs",
    "cjs",
    "go",
    "rs",
    "rb",
    "java",
    "kt",
    "php",
    "sh",
    "c",
    "cpp",
    "cs",
    "exs",
}
_WORD = re.compile(r"[^\s'\"=;&|()<>:]+")
_SOLVES = re.compile(r"^(?:\+\+\+ b|--- a)/([^\n\t]+)", re.MULTILINE)


async def put_back(sandbox: Sandbox, task: Task, base: str, patch: bytes) -> tuple[str, ...]:
    """Restore what decides in ``base`` with ``patch``; the paths that this changed. Raises: PatchError, SandboxError."""
    changed = await changed_paths(sandbox, task.workdir, base)
    # What .gitignore names can be brought by force; git does not see it here, and the base has nothing in its place.
    smuggled = [path for path in patched_paths(patch) if path not in changed and decides(path, task)]
    if smuggled:
        await sandbox.exec(["rm", "-rf", "--", *smuggled], cwd=task.workdir, timeout_sec=60, idempotent=True)
    decisive = [path for path in changed if decides(path, task)]
    for path in changed:
        if path not in decisive and await _asks_pytest_otherwise(sandbox, task, base, path):
            decisive.append(path)
    return (*await restore_paths(sandbox, task.workdir, base, decisive), *smuggled)


def decides(path: str, task: Task) -> bool:
    """Whether a changed file of the task's repository decides the verdict."""
    parts = PurePosixPath(path).parts
    name = parts[-1]
    if any(map(_ALWAYS.match, parts)) or name.endswith(_COMPILED):
        return True
    if _SHADOWS.match(parts[0]) or _ENVIRONMENTS & {*parts}:
        return not any(place.startswith(f"{parts[0]}/") for place in _solution(task))
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
    return not any("/" in word or "." in word for word in words) and bool(_TEST_FILE.match(name))


def _as_path(word: str) -> str:
    """``tests.test_a.TestB`` → ``tests/test_a.py``: the dotted name of a test as unittest takes it. Else the word itself."""
    parts = word.split(".")
    tests = [index for index, part in enumerate(parts) if re.match(r"^test_|^tests?$", part)]
    if len(parts) < 2 or not tests or not all(map(str.isidentifier, parts)) or parts[-1] in _SUFFIXES:
        return word
    return "/".join(parts[: tests[-1] + 1]) + ("" if parts[tests[-1]] in _TEST_FOLDERS else ".py")


def _judges(task: Task) -> Iterator[str]:
    """What the command names or its runner reads, when the task's solution is known and leaves it alone."""
    solution = _solution(task)
    command = task.metadata.get("eval_cmd", "")
    words = set(map(_plain, _WORD.findall(command)))
    read = {name for word in words for name in _RUNNERS.get(word, ())}
    if solution:
        yield from (words | read) - solution - {"."}


def _solution(task: Task) -> set[str]:
    """What the task's own solution touches, where it is known."""
    return set(_SOLVES.findall(task.metadata.get("gold_patch", "")))


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
