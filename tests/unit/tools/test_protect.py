"""Which files decide whatever the task, and what a configuration file says to pytest."""

from __future__ import annotations

import pytest

from agentrl.tools.protect import configures_tests, looks_like_test, pytest_section, stands_in


@pytest.mark.parametrize(
    "path",
    [
        *("conftest.py", "a/b/conftest.py", "conftest.cpython-311.so", "sitecustomize/__init__.py", "usercustomize.py"),
        *("x.pth", "a/__pycache__/b.cpython-311.pyc", ".pytest.ini", "pytest.toml", "tox.ini", "jest.config.ts"),
    ],
)
def test_it_is_read_before_the_first_test(path):
    assert configures_tests(path)


@pytest.mark.parametrize("path", ["docs/conftest.md", "my_conftest.py", "pytest.md", "toxic.ini", "setup.cfg", "a.py"])
def test_it_is_not(path):
    assert not configures_tests(path)


@pytest.mark.parametrize(
    ("path", "does"),
    [
        *(("pytest.py", True), ("unittest/__init__.py", True), ("_pytest/a.py", True), (".venv/bin/python", True)),
        *(("src/pytest.py", False), ("pytester.py", False), ("lib/site-packages/a.py", True)),
    ],
)
def test_what_stands_in_for_the_runner(path, does):
    assert stands_in(path) is does


@pytest.mark.parametrize(
    ("path", "does"),
    [
        *(("a/Tests/b.txt", True), ("b.spec.ts", True), ("thing_test.go", True), ("FooTest.java", True)),
        *(("latest.py", False), ("testimony/a.py", False), ("contest.py", False)),
    ],
)
def test_what_looks_like_a_test(path, does):
    assert looks_like_test(path) is does


@pytest.mark.parametrize(
    ("path", "before", "after", "same"),
    [
        ("pyproject.toml", b"[project]\nname='a'\n", b"[project]\nname='b'\n", True),
        ("pyproject.toml", b"", b"[tool.pytest.ini_options]\naddopts='-k nothing'\n", False),
        ("pyproject.toml", b"[a", b"[a", False),
        ("setup.cfg", b"[metadata]\nname=a\n", b"[metadata]\nname=b\n", True),
        ("setup.cfg", b"[tool:pytest]\naddopts=-q\n", b"[tool:pytest]\naddopts=-k x\n", False),
    ],
)
def test_only_what_is_said_to_pytest_counts(path, before, after, same):
    assert (pytest_section(path, before) == pytest_section(path, after)) is same
