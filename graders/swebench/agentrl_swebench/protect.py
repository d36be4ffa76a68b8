"""Which of the agent's changes decide the verdict and are taken back before the tests run.

The benchmark splits every pull request into ``patch`` and ``test_patch``, so a solution never needs to touch a test. Put
back: what ``test_patch`` touches; what looks like a test or its configuration; what the test command names. Never what the
row's own ``patch`` touches.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from pathlib import PurePosixPath

_ALWAYS = {
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "tox.ini"),
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "setup.cfg", "pyproject.toml"),
}
_SHADOWS = {"pytest.py", "unittest.py", "pytest/__init__.py", "unittest/__init__.py"}
_FOLDERS = {"test", "tests", "testing", "e2e"}
_TEST_FILE = re.compile(r"^test_.*\.py$|.*_tests?\.py$|^tests?\.py$")
_TOUCHED = re.compile(r"^(?:(?:---|\+\+\+) [ab]/|rename (?:from|to) )([^\t\n]+)", re.MULTILINE)
_HEADER = re.compile(r"^diff --git a/(.+) b/(.+)$", re.MULTILINE)
_WORD = re.compile(r"[^\s'\"=;&|()<>:]+")


def deciding(changed: Iterable[str], *, patch: str, test_patch: str, command: str) -> list[str]:
    """Those of the ``changed`` paths that decide. ``command``: the lines that run the tests."""
    tests, solution = touched(test_patch), touched(patch)
    named = {str(PurePosixPath(word)) for word in _WORD.findall(command)}
    return [
        path
        for path in changed
        if path in tests or (path not in solution and (decides(path) or _is_runner(path, named)))
    ]


def touched(patch: str) -> set[str]:
    """The paths that a patch names."""
    return {*_TOUCHED.findall(patch), *(path for pair in _HEADER.findall(patch) for path in pair)}


def decides(path: str) -> bool:
    """Whether a path is a test's, or is read before the first test runs, by its name."""
    pure = PurePosixPath(path)
    return (
        pure.name in _ALWAYS
        or pure.suffix == ".pth"
        or path in _SHADOWS
        or bool(_TEST_FILE.match(pure.name))
        or any(part in _FOLDERS for part in pure.parts[:-1])
    )


def _is_runner(path: str, named: Container[str]) -> bool:
    """A program of the repository that runs its tests. Modules that a command names may be what is tested."""
    return path in named and not path.endswith(".py")
