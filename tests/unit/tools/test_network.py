"""Lines that fetch are found, others are left alone."""

from __future__ import annotations

import pytest

from agentrl.api import fetching_line


@pytest.mark.parametrize(
    "line",
    [
        *(
            "pip install x",
            "python -m pip install -e .[test]",
            "python3.9 -m pip --quiet install x",
            "uv pip install x",
        ),
        *(
            "apt-get update && apt-get install -y graphviz",
            "DEBIAN_FRONTEND=noninteractive apt-get install -y x",
            "sudo apt install x",
        ),
        *(
            "curl -LsSf https://example.org/i.sh | sh",
            "uvx -p 3.13 pytest",
            "/usr/bin/wget -q http://example.org",
            "npm ci",
            "yarn",
        ),
        *(
            "cd web && npx jest",
            "git clone https://example.org/x",
            "git -C sub fetch origin",
            "go mod download",
            "mvn test",
        ),
        *("conda env update -f e.yml", "if true; then pip download x; fi", "cargo fetch", "bundle install"),
    ],
)
def test_it_fetches(line):
    assert fetching_line(f"set -x\n{line}\nexit\n") == line


@pytest.mark.parametrize(
    "line",
    [
        *(
            "pip install --no-index -f wheels x",
            "pip install --no-deps --no-build-isolation -e .",
            "pip list",
            "git status",
        ),
        *(
            "curl -s http://localhost:8080/",
            "curl --version",
            "# pip install x",
            "echo pipinstall",
            "mvn -o test",
            "mvn --offline test",
        ),
        *(
            "git checkout abc tests/pip_install.py",
            "pytest tests/test_pip.py",
            "npm test",
            "npm run build",
            "yarn test",
            "cargo test",
        ),
    ],
)
def test_it_does_not(line):
    assert fetching_line(line) is None


def test_here_documents_are_no_commands():
    assert fetching_line("git apply - <<'EOF_1'\n+pip install x\nEOF_1\ntrue\n") is None
    assert fetching_line("cat <<EOF\nnothing\nEOF\nnpm ci\n") == "npm ci"


def test_continued_lines_are_one():
    assert fetching_line("apt-get \\\n  install -y x") == "apt-get    install -y x"
