"""What decides is put back; what may be the solution is not."""

from __future__ import annotations

import pytest

from agentrl.api import touched
from agentrl_swebench.protect import deciding

PATCH = "diff --git a/src/_pytest/a.py b/src/_pytest/a.py\n--- a/src/_pytest/a.py\n+++ b/src/_pytest/a.py\n@@ -1 +1 @@\n-a\n+b\n"
RENAME = (
    "diff --git a/old name.py b/new name.py\nsimilarity index 100%\nrename from old name.py\nrename to new name.py\n"
)
MODE = "diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n"


def test_a_patch_names_its_paths():
    assert touched(PATCH) == {"src/_pytest/a.py"}
    assert touched(RENAME) >= {"old name.py", "new name.py"}
    assert touched(MODE) == {"tool"}


@pytest.mark.parametrize(
    "path",
    [
        *("conftest.py", "a/conftest.py", "sitecustomize.py", "x.pth", "pytest.ini", "tox.ini", "setup.cfg"),
        *("tests/helper.py", "pkg/tests/data/a.txt", "testing/a.py", "test_a.py", "pkg/a_test.py", "pytest.py"),
        *("bin/test", "unittest/__init__.py"),
    ],
)
def test_it_decides(path):
    assert deciding(patch="", test_patch=PATCH, command="PYTHONWARNINGS=x bin/test -C a.py")(path)


@pytest.mark.parametrize(
    "path", ["src/a.py", "src/latest.py", "testimony/a.py", "a.py", "docs/conftest.md", "pkg/pytest.py"]
)
def test_it_does_not(path):
    assert not deciding(patch="", test_patch=PATCH, command="pytest --doctest-modules a.py")(path)


def test_the_solution_may_touch_what_looks_like_a_test_but_not_the_tests_themselves():
    gold = PATCH + "--- a/setup.cfg\n+++ b/setup.cfg\n"
    decides = deciding(patch=gold, test_patch="", command="")
    assert [*map(decides, ("src/_pytest/a.py", "setup.cfg", "conftest.py"))] == [False, False, True]
    assert deciding(patch=gold, test_patch=PATCH, command="")("src/_pytest/a.py")
