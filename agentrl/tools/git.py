"""The start state of a task's repository: one commit, and nothing after it."""

from __future__ import annotations

from agentrl.sandbox import Sandbox
from agentrl.tools.rawgit import TIMEOUT_SEC, check, fresh_path, raw_git, script


async def freeze_start(sandbox: Sandbox, workdir: str) -> str:
    """Commit whatever lies in ``workdir`` and is not ignored, making it a repository if it is none; the commit's id.

    Equal files on an equal HEAD give an equal id in every sandbox. Without it, what an image leaves uncommitted would
    look like the agent's work. Raises: PatchError (``workdir`` is inside another repository, no git, ...), SandboxError.
    """
    return (await raw_git(sandbox, "freeze", fresh_path(), workdir)).decode("ascii").strip()


async def prune_future(sandbox: Sandbox, workdir: str) -> None:
    """Leave the repository only the history of the commit that it is at.

    Other refs, tags, remotes, stashes, reflogs, notes, submodule repositories and every object that only they reached
    are gone for good; this is checked. For the agent's sandbox, before the agent starts. Raises: PatchError, SandboxError.
    """
    argv = ["sh", "-c", script("prune.sh"), "sh", workdir, fresh_path()]
    result = await sandbox.exec(argv, cwd="/", timeout_sec=TIMEOUT_SEC)
    check(result, f"pruning {workdir}")
