"""Write ``tasks.jsonl`` from the folder ``tasks``: one row in the ``scaleswe`` format for each task.

A task is ``tasks/<level>/<id>/`` with ``issue.md`` (what the agent is asked), ``repo/`` (the broken repository, with the
failing test ``repo/tests/test_*.py``) and ``gold.patch`` (a repair). Same folder, same bytes: nothing here depends on
the clock, the machine or its git. Run: ``python examples/swe/make_tasks.py``
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORKDIR = "/testbed"

# What Python leaves behind when somebody runs the tests is not part of anybody's repair.
_IGNORED = "__pycache__/\n"

# The author and the dates are part of a commit's id: fixed ones make the base commit the same everywhere.
_COMMIT = (
    "GIT_AUTHOR_DATE=2024-01-01T00:00:00Z GIT_COMMITTER_DATE=2024-01-01T00:00:00Z "
    f"git -C {WORKDIR} -c user.name=Author -c user.email=author@example.org commit --quiet --message 'Initial state'"
)


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of all tasks under ``folder``, ordered by level and id."""
    for task in sorted(folder.glob("level-*/*")):
        yield row(task)


def row(task: Path) -> dict[str, Any]:
    """The row of one task's folder."""
    issue = (task / "issue.md").read_text("utf-8").strip()
    [test] = (task / "repo").glob("tests/test_*.py")
    test_path = test.relative_to(task / "repo").as_posix()
    metadata = {
        "instance_id": task.name,
        "image": "host",
        "workdir": WORKDIR,
        "level": task.parent.name,
        "problem_statement": issue,
        "pre_commands": pre_commands(task / "repo"),
        # -I: neither the folder of the tests nor the repository can put its own module before Python's.
        "eval_cmd": f"python3 -I {test_path}",
        "restore": [test_path],
        "gold_patch": (task / "gold.patch").read_text("utf-8"),
    }
    return {"prompt": issue, "label": "", "metadata": metadata}


def pre_commands(repo: Path) -> list[str]:
    """Shell lines that make ``repo`` in an empty sandbox and commit it. Files are not executable."""
    kept = (file for file in repo.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    files = {file.relative_to(repo).as_posix(): file.read_text("utf-8") for file in kept}
    files[".gitignore"] = _IGNORED
    folders = sorted({str((Path(WORKDIR) / name).parent) for name in files})
    return [
        f"mkdir -p {shlex.join(folders)}",
        *(f"printf %s {shlex.quote(files[name])} > {shlex.quote(f'{WORKDIR}/{name}')}" for name in sorted(files)),
        f"git -C {WORKDIR} init --quiet --initial-branch main",
        f"git -C {WORKDIR} add --all",
        _COMMIT,
    ]


def main() -> None:
    """Write the file beside this script."""
    lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in rows(HERE / "tasks")]
    (HERE / "tasks.jsonl").write_text("".join(lines), "utf-8")
    print(f"{len(lines)} tasks")


if __name__ == "__main__":
    main()
