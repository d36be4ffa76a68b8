"""Installed pure-Python packages that bring their tests, as SWE-bench instances: an image, a row, and patches to grade."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.api import Layer

DATES = {"GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z"}
WHO = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "author")

SYMPY_RUNNER = """\
#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from sympy.testing.runtests import test

sys.exit(not test(*sys.argv[1:], verbose=True, colors=False, subprocess=False, seed=1))
"""


@dataclass(frozen=True)
class Shape:
    """``fault`` and ``hidden`` replace text of the real file: the base has the fault, and not the test of it."""

    package: str
    source: str
    fault: tuple[str, str]
    test: str
    hidden: tuple[str, str] | None
    command: str
    log_parser: str
    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    extra: dict[str, str] | None = None
    keep: Callable[[Path], bool] = lambda _: True


def _except_tests(path: Path) -> bool:
    aside = {"tests", "physics", "stats", "holonomic", "diffgeom", "vector", "liealgebras", "categories", "crypto"}
    return not aside & set(path.parts) or path.parts[:3] == ("sympy", "utilities", "tests")


SHAPES = {
    # pytest, tests inside the package; test_patch adds a function to a file.
    "mpmath__mpmath-1": Shape(
        package="mpmath",
        source="mpmath/libmp/libintmath.py",
        fault=("    return t + small_trailing[n & 0xff]\n", "    return small_trailing[n & 0xff]\n"),
        test="mpmath/tests/test_bitwise.py",
        hidden=("def test_trailing():\n", "def trailing_is_not_tested_yet():\n"),
        command="PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -rA -p no:cacheprovider mpmath/tests/test_bitwise.py",
        log_parser="parse_log_pytest",
        fail_to_pass=["mpmath/tests/test_bitwise.py::test_trailing"],
        pass_to_pass=[f"mpmath/tests/test_bitwise.py::test_{name}" for name in ("bitcount", "round_up", "perturb")],
        keep=lambda path: "tests" not in path.parts or path.name in ("__init__.py", "test_bitwise.py"),
    ),
    # unittest's lines, as Django prints them; test_patch sharpens a test.
    "smmap__smmap-2": Shape(
        package="smmap",
        source="smmap/util.py",
        fault=("    if round_up and (res != num):\n", "    if round_up:\n"),
        test="smmap/test/test_util.py",
        hidden=(
            "        assert wc.ofs == 0 and wc.size == align_to_mmap(wc.size, True)\n",
            "        assert wc.ofs == 0\n",
        ),
        command="python -m unittest -v smmap.test.test_util",
        log_parser="parse_log_django",
        fail_to_pass=["test_window (smmap.test.test_util.TestMMan.test_window)"],
        pass_to_pass=["test_region (smmap.test.test_util.TestMMan.test_region)"],
    ),
    # A runner of the repository's own; test_patch brings the whole file.
    "sympy__sympy-3": Shape(
        package="sympy",
        source="sympy/utilities/enumerative.py",
        fault=(
            "                if changed:  # Put all available",
            "                if not changed:  # Put all available",
        ),
        test="sympy/utilities/tests/test_enumerative.py",
        hidden=None,
        command="bin/test sympy/utilities/tests/test_enumerative.py",
        log_parser="parse_log_sympy",
        fail_to_pass=["test_multiset_partitions_versions"],
        pass_to_pass=["test_multiset_partitions_taocp"],
        extra={"bin/test": SYMPY_RUNNER},
        keep=_except_tests,
    ),
}


class Instance:
    """``row`` is complete but for the image, which is to be baked from ``layer``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.shape, self.folder = name, SHAPES[name], folder
        self._copy()
        self._swap(self.shape.source, *self.shape.fault)
        self._hide()
        self._git("init", "-q", "-b", "main")
        self.base = self._commit()
        self.patch = self._diff(self.shape.source, lambda: self._swap(self.shape.source, *reversed(self.shape.fault)))
        self.test_patch = self._diff(self.shape.test, self._show)
        unpack = "mkdir /testbed && tar -C /testbed --no-same-owner -xf /tmp/r.tar && rm /tmp/r.tar"
        self.layer = Layer(f"repository-{name}", (unpack, "python -m compileall -q /testbed"), self._files())

    @property
    def row(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "instance_id": self.name,
            "repo": f"{shape.package}/{shape.package}",
            "base_commit": self.base,
            "patch": self.patch,
            "test_patch": self.test_patch,
            "problem_statement": f"Something in {shape.source} is wrong.",
            "version": "1.0",
            "FAIL_TO_PASS": list(shape.fail_to_pass),
            "PASS_TO_PASS": list(shape.pass_to_pass),
            "log_parser": shape.log_parser,
            "eval_type": "pass_and_fail",
            "eval_script": self._eval_script(),
        }

    def change(self, path: str, make: Callable[[str], str]) -> str:
        """A patch that turns the text of ``path`` (empty when it is not there) into ``make(text)``."""
        file = self.folder / path

        def write() -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(make(file.read_text() if file.exists() else ""))

        return self._diff(path, write)

    def _eval_script(self) -> str:
        reset = f"git checkout {self.base} {self.shape.test}" if self.shape.hidden else f"rm -f {self.shape.test}"
        lines = (
            *("#!/bin/bash", "set -uxo pipefail", "cd /testbed", "git config --global --add safe.directory /testbed"),
            *("git status", "git show", f"git -c core.fileMode=false diff {self.base}", reset),
            *(f"git apply -v - <<'EOF_114329324912'\n{self.test_patch}", "EOF_114329324912"),
            *(": '>>>>> Start Test Output'", self.shape.command, ": '>>>>> End Test Output'", reset),
        )
        return "\n".join(lines) + "\n"

    def _copy(self) -> None:
        spec = find_spec(self.shape.package)
        assert spec is not None and spec.origin is not None
        source = Path(spec.origin).parent
        for path in source.rglob("*.py"):
            inside = Path(self.shape.package, path.relative_to(source))
            if self.shape.keep(inside):
                (self.folder / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self.folder / inside)
        for name, text in {".gitignore": "__pycache__/\n", **(self.shape.extra or {})}.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def _hide(self) -> None:
        file = self.folder / self.shape.test
        self._whole = file.read_text()
        if self.shape.hidden is None:
            file.unlink()
        else:
            self._swap(self.shape.test, *self.shape.hidden)

    def _show(self) -> None:
        (self.folder / self.shape.test).write_text(self._whole)

    def _swap(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text()
        assert text.count(old) == 1, (path, old)
        (self.folder / path).write_text(text.replace(old, new))

    def _git(self, *arguments: str) -> str:
        env = {**os.environ, **DATES, **WHO, "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(["git", *arguments], cwd=self.folder, env=env, capture_output=True, text=True, check=True)
        return done.stdout

    def _commit(self) -> str:
        self._git("add", "--all")
        self._git("commit", "-q", "-m", "base")
        return self._git("rev-parse", "HEAD").strip()

    def _diff(self, path: str, change: Callable[[], object]) -> str:
        change()
        self._git("add", "--all")
        made = self._git("diff", "--cached", "HEAD", "--", path)
        self._git("reset", "-q", "--hard", "HEAD")
        return made

    def _files(self) -> dict[str, bytes]:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.add(self.folder, arcname=".")
        return {"/tmp/r.tar": made.getvalue()}
