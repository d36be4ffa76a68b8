"""The agent's files, out of its sandbox and into a fresh one.

Harbor verifies where the agent worked. Here a verdict is given in a fresh sandbox, so what counts is what can be carried: the
workdir (a patch where it is a clean git repository at the start, an archive of all of it otherwise) and the paths that the task
names as artifacts. Processes, installed packages and files elsewhere stay behind. With ``environment_mode = "separate"`` only
artifacts are carried, as the format says.
"""

from __future__ import annotations

import shlex

from agentrl.api import (
    FileDenied,
    FileMissing,
    GraderError,
    PatchError,
    PatchRejected,
    PatchTooLarge,
    Prepared,
    Sandbox,
    Submission,
    Task,
    apply_patch,
    capture_patch,
    freeze_start,
    fresh_path,
    kill_agent_processes,
    prune_future,
    read_base,
)
from agentrl_harbor.settings import HarborSettings

TAR_SEC = 300.0
WORKDIR = "workdir.tar"
ARTIFACT = "artifact:"


async def start(sandbox: Sandbox, task: Task, *, prune: bool) -> Prepared:
    """See :meth:`agentrl.api.TaskFormat.prepare`. The base commit is empty where the workdir is carried as an archive."""
    made = await sandbox.exec(["mkdir", "-p", task.workdir], cwd="/", timeout_sec=60, idempotent=True)
    if not made.ok:
        raise GraderError(f"task {task.id}: {task.workdir} cannot be a folder: {_said(made.stderr)}")
    if task.metadata["separate"] or not (base := await _clean_base(sandbox, task)):
        return Prepared()
    if prune:
        try:
            await prune_future(sandbox, task.workdir)
        except PatchError as error:
            raise GraderError(f"task {task.id}: its future cannot be removed: {error}") from error
    return Prepared(base)


async def collect(sandbox: Sandbox, task: Task, base: str, settings: HarborSettings) -> Submission:
    """What is carried, once nothing runs any more. Raises: PatchError, PatchTooLarge, SandboxError."""
    await kill_agent_processes(sandbox)
    artefacts: dict[str, bytes] = {}
    for path in task.metadata["artifacts"]:
        if (data := await _archive(sandbox, "/", path.lstrip("/"), settings.files_max_bytes)) is not None:
            artefacts[ARTIFACT + path] = data
    if task.metadata["separate"]:
        return Submission("", b"", artefacts)
    if base:
        captured = await capture_patch(sandbox, task.workdir, base, max_bytes=settings.patch_max_bytes)
        return Submission(base, captured.patch, artefacts, captured.ignored)
    if (data := await _archive(sandbox, task.workdir, ".", settings.files_max_bytes)) is None:
        raise PatchError(f"{task.workdir} is gone")
    return Submission("", b"", {**artefacts, WORKDIR: data})


async def restore(sandbox: Sandbox, task: Task, submission: Submission) -> None:
    """Put the carried files into a fresh sandbox in its start state. Raises: PatchRejected, GraderError, SandboxError."""
    for name, data in submission.artefacts.items():
        if name == WORKDIR:
            await empty(sandbox, task.workdir)
            await unpack(sandbox, task.workdir, data)
        elif name.startswith(ARTIFACT):
            await sandbox.exec(["rm", "-rf", name.removeprefix(ARTIFACT)], cwd="/", timeout_sec=TAR_SEC)
            await unpack(sandbox, "/", data)
    if submission.patch.strip():
        await _patch(sandbox, task, submission)


async def empty(sandbox: Sandbox, folder: str) -> None:
    """A folder with nothing in it, whatever was there. Raises: GraderError, SandboxError."""
    command = (
        f"mkdir -p {shlex.quote(folder)} && find {shlex.quote(folder)} -mindepth 1 -maxdepth 1 -exec rm -rf {{}} +"
    )
    done = await sandbox.exec(command, cwd="/", timeout_sec=TAR_SEC, idempotent=True)
    if not done.ok:
        raise GraderError(f"{folder} cannot be emptied: {_said(done.stderr)}")


async def unpack(sandbox: Sandbox, folder: str, archive: bytes) -> None:
    """A tar archive into a folder. Raises: GraderError, SandboxError."""
    path = f"{fresh_path()}.tar"
    await sandbox.write_file(path, archive)
    command = (
        f"mkdir -p {shlex.quote(folder)} && tar -C {shlex.quote(folder)} -xpf {path}; code=$?; rm -f {path}; exit $code"
    )
    done = await sandbox.exec(command, cwd="/", timeout_sec=TAR_SEC)
    if not done.ok:
        raise GraderError(f"files cannot be unpacked into {folder}: {_said(done.stderr)}")


async def _patch(sandbox: Sandbox, task: Task, submission: Submission) -> None:
    try:
        if base := await _clean_base(sandbox, task):
            await apply_patch(sandbox, task.workdir, base, submission.patch)
            return
        # No repository, or one that is not clean: for the patch only, and of another folder's making.
        aside = f"{fresh_path()}-git"
        git = f"{task.workdir}/.git"
        await _move(sandbox, git, aside)
        await apply_patch(sandbox, task.workdir, await freeze_start(sandbox, task.workdir), submission.patch)
        await sandbox.exec(["rm", "-rf", git], cwd="/", timeout_sec=TAR_SEC)
        await _move(sandbox, aside, git)
    except PatchRejected:
        raise
    except PatchError as error:
        raise GraderError(f"task {task.id}: the patch cannot be applied: {error}") from error


async def _move(sandbox: Sandbox, source: str, target: str) -> None:
    await sandbox.exec(f"test ! -e {source} || mv {source} {target}", cwd="/", timeout_sec=TAR_SEC)


async def _clean_base(sandbox: Sandbox, task: Task) -> str:
    """The commit that the workdir equals; empty when it is no repository, or has changes, or there is no git."""
    try:
        base = await read_base(sandbox, task.workdir)
        changes = await capture_patch(sandbox, task.workdir, base)
    except PatchError:
        return ""
    return "" if changes.patch else base


async def _archive(sandbox: Sandbox, folder: str, path: str, max_bytes: int) -> bytes | None:
    """A tar archive of ``path`` in ``folder``; None if there is no such path."""
    name = f"{fresh_path()}.tar"
    command = f"cd {shlex.quote(folder)} && test -e {shlex.quote(path)} && tar -cf {name} {shlex.quote(path)}"
    done = await sandbox.exec(command, cwd="/", timeout_sec=TAR_SEC)
    if done.exit_code == 1 and not done.stderr:
        return None
    if not done.ok:
        raise PatchError(f"{folder}/{path} cannot be archived: {_said(done.stderr)}")
    try:
        return await sandbox.read_file(name, max_bytes=max_bytes)
    except FileMissing as error:
        raise PatchError(f"{folder}/{path} left no archive") from error
    except FileDenied as error:
        raise PatchTooLarge(f"{folder}/{path} is larger than {max_bytes} bytes") from error


def _said(stderr: bytes) -> str:
    return stderr[-1000:].decode(errors="replace").strip()
