"""Write tasks.jsonl from tasks/: rows of SWE-bench whose ``pre_commands`` make the repository in any sandbox with git and Python."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATE = "2024-01-01T00:00:00Z"
COMMIT = (
    f"GIT_AUTHOR_DATE={DATE} GIT_COMMITTER_DATE={DATE} git -c user.name=Author -c user.email=author@example.org "
    "-c core.fileMode=true commit --quiet --message 'Initial state'"
)


def main() -> None:
    """Always the same bytes."""
    rows = [row_of(folder) for folder in sorted((HERE / "tasks").iterdir())]
    (HERE / "tasks.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def row_of(folder: Path) -> dict[str, Any]:
    """One task as a row."""
    known = json.loads((folder / "row.json").read_text("utf-8"))
    command = known.pop("test_cmd")
    test_patch = (folder / "test.patch").read_text("utf-8")
    commands = start_state(folder / "repo")
    base = commit_of(commands)
    return {
        "instance_id": folder.name,
        **known,
        "version": "1.0",
        "base_commit": base,
        "problem_statement": (folder / "issue.md").read_text("utf-8"),
        "patch": (folder / "gold.patch").read_text("utf-8"),
        "test_patch": test_patch,
        "image": "host",
        "eval_type": "pass_and_fail",
        "eval_script": eval_script(base, test_patch, command),
        "pre_commands": commands,
    }


def start_state(repository: Path) -> list[str]:
    """Shell lines that write the files and commit them."""
    lines = ["git init --quiet --initial-branch main ."]
    for path in sorted(file for file in repository.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
        name = shlex.quote(str(path.relative_to(repository)))
        mode = "755" if path.stat().st_mode & 0o100 else "644"
        text = shlex.quote(path.read_text("utf-8"))
        lines.append(f"mkdir -p $(dirname {name}) && printf %s {text} >{name} && chmod {mode} {name}")
    return [*lines, "git add --all", COMMIT]


def commit_of(commands: list[str]) -> str:
    """The id that the start state's commit has everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        script = "\n".join(["set -e", *commands, "git rev-parse HEAD"])
        done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def eval_script(base: str, test_patch: str, command: str) -> str:
    """As the benchmark writes them, without conda."""
    files = [line.removeprefix("--- a/") for line in test_patch.splitlines() if line.startswith("--- a/")]
    reset = f"git checkout {base} {' '.join(files)}" if files else "true"
    lines = (
        *("#!/bin/bash", "set -uxo pipefail", "cd /testbed", "git config --global --add safe.directory /testbed"),
        *("git status", "git show", f"git -c core.fileMode=false diff {base}", reset),
        *("git apply -v - <<'EOF_114329324912'", test_patch.rstrip("\n"), "EOF_114329324912"),
        *(": '>>>>> Start Test Output'", command, ": '>>>>> End Test Output'", reset),
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
