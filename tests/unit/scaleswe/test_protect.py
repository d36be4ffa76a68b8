"""Which changed files decide a verdict."""

from __future__ import annotations

import pytest

from agentrl.api import Task
from agentrl_scaleswe.protect import decides


def task(eval_cmd="", restore=(), swepro=None):
    metadata = {"eval_cmd": eval_cmd, "restore": list(restore), **({"swepro": swepro} if swepro else {})}
    return Task("t", "scaleswe", "p", "/w", metadata=metadata)


@pytest.mark.parametrize(
    "path", ["conftest.py", "a/b/conftest.py", "sitecustomize.py", "x.pth", "pytest.ini", "tox.ini", "pytest.py"]
)
def test_configuration_decides_whatever_the_command(path):
    assert decides(path, task("make check"))


@pytest.mark.parametrize(
    ("command", "path", "decisive"),
    [
        ("pytest tests/unit/test_a.py::test_x", "tests/unit/test_a.py", True),
        ("pytest tests/unit/test_a.py", "tests/helpers.py", True),
        ("pytest sympy/testing/tests/test_r.py", "sympy/testing/runtests.py", False),
        ("pytest src/test_a.py", "src/a.py", False),
        ("python calc.py", "calc.py", False),
        ("python -m pytest -q", "anywhere/test_new.py", True),
        ("python -m pytest -q", "anywhere/new.py", False),
        ("make test", "pkg/thing_test.go", True),
        ("pytest tests/test_a.py", "other/test_b.py", False),
        ("bash ./tests/run.sh", "tests/run.sh", True),
        ("cd src && npm test", "src/index.js", False),
    ],
)
def test_words_of_the_command(command, path, decisive):
    assert decides(path, task(command)) is decisive


def test_restore_names_files_and_folders():
    named = task("python check.py", restore=["check.py", "data/"])
    assert decides("check.py", named) and decides("data/golden/x.bin", named) and not decides("database.py", named)


def test_a_harness_names_its_tests():
    harness = {
        "selected_test_files": ["test/api/a.ts"],
        "before_repo_set_cmd": "git reset --hard abc\ngit checkout def -- fixtures/x.json spec/b.ts",
    }
    named = task(swepro=harness)
    assert decides("test/lib.ts", named) and decides("fixtures/x.json", named) and not decides("src/a.ts", named)
