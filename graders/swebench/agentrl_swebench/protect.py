"""Which of the agent's changes decide the verdict and are taken back before the tests run; and where the tests are.

The benchmark splits every pull request into ``patch`` and ``test_patch``, so a solution never needs to touch a test. Put
back: what ``test_patch`` touches; what :mod:`agentrl.tools.protect` knows to decide; the files that configure a repository's
tests among other things; programs that the test command names. Never what the row's own ``patch`` touches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from agentrl.api import Control, Targets, configures_tests, looks_like_test, patched_paths, stands_in, touched

_ALSO = ("setup.cfg", "pyproject.toml")
_WORD = re.compile(r"[^\s'\"=;&|()<>:]+")


def deciding(*, patch: str, test_patch: str, command: str) -> Callable[[str], bool]:
    """Whether a changed path decides. ``command``: the lines that run the tests."""
    tests, solution = touched(test_patch), touched(patch)
    # Modules that a command names may be what is tested.
    runners = {str(PurePosixPath(word)) for word in _WORD.findall(command) if not word.endswith(".py")}

    def decides(path: str) -> bool:
        if path in tests or path in solution:
            return path in tests
        by_name = configures_tests(path) or stands_in(path) or looks_like_test(path)
        return by_name or PurePosixPath(path).name in _ALSO or path in runners

    return decides


def control_of(workdir: str, test_patch: str, patch: bytes) -> Control:
    """How the pass of ``patch`` can be put to the test: in the Python files of ``test_patch``."""
    tests = sorted(path for path in touched(test_patch) if path.endswith(".py"))
    return Control(Targets(tests=tests), tuple(f"{workdir}/{name}" for name in patched_paths(patch)))
