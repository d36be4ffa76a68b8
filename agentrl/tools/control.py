"""The control run: a pass is believed only if the same tests can fail.

Code under test runs in the process of its tests. It can leave early with exit code 0, patch the assertions, write the
report itself. So what passed is run once more, in another fresh sandbox, with every test of the task's Python files made
to fail: code that earns as much all the same has not been tested, and is not solved.

This works where it is known which Python files hold the tests (:class:`Targets`); a grader knows that for its own format.
Elsewhere the first verdict stands. Code that tells a control run from a real one, or whose objects are equal to
everything, is beyond it.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agentrl.errors import GraderError
from agentrl.grader import OpenSandbox
from agentrl.outcomes import ExitStatus
from agentrl.sandbox import Sandbox
from agentrl.tools.sabotage import sabotaged
from agentrl.types import Grade

MAX_FILES = 200
_PYTHON = re.compile(r"^(.*/)?python(\d(\.\d+)?)?$")
_PYTEST = re.compile(r"^(.*/)?(pytest|py\.test)$")
_TEST_MODULE = re.compile(r"^(test_.*|.*_tests?|tests?)\.py$")
_TAKES_VALUE = {"-X", "-W"}
_SHELL = set("|;&!<>(){}`$\n#*?[]")
_CALL_SEC = 60.0


class NoControl(GraderError):
    """There is no test that could be made to fail."""


@dataclass(slots=True)
class Targets:
    """Where tests are, below a folder. ``scripts`` are run by ``python FILE``; ``tests`` are files, folders or modules given
    to a runner."""

    scripts: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Control:
    """What to make fail. ``changed``: absolute paths of what the patch touches."""

    targets: Targets
    changed: tuple[str, ...] = ()


async def believed(
    grade: Grade,
    control: Control | None,
    open_sandbox: OpenSandbox,
    judge: Callable[[Sandbox, Control], Awaitable[Grade]],
) -> Grade:
    """``grade``, unless ``judge`` gives as much in a fresh sandbox with the tests made to fail: that is 0.

    Where nothing can be made to fail (no ``control``, or :class:`NoControl`) the grade stands. Any other failure of the
    control run is passed on: a machine that died proves nothing about the work.
    """
    if control is None or grade.reward == 0:
        return grade
    try:
        async with open_sandbox() as sandbox:
            again = await judge(sandbox, control)
    except NoControl:
        return grade
    if again.exit_status is ExitStatus.PATCH_REJECTED:
        raise GraderError("a patch that applied does not apply in a second sandbox of the same task")
    if again.reward < grade.reward:
        return grade
    details = {name: value for name, value in grade.details.items() if name != "partial"}
    said = "the tests pass also when each of them is made to fail"
    return Grade(0.0, ExitStatus.UNSOLVED, {**details, "control": said}, grade.restored)


async def sabotage(sandbox: Sandbox, folder: str, control: Control) -> None:
    """Make the tests below ``folder`` fail. Raises: NoControl, GraderError, SandboxError."""
    archive = await sabotaged_archive(sandbox, folder, control)
    command = ["tar", "--no-same-owner", "-xf", "-", "-C", folder]
    written = await sandbox.exec(command, cwd="/", stdin=archive, timeout_sec=_CALL_SEC)
    if not written.ok:
        raise GraderError(f"the control run in {folder} cannot be prepared: {written.stderr[-500:]!r}")


async def sabotaged_archive(sandbox: Sandbox, folder: str, control: Control) -> bytes:
    """A tar archive of the files below ``folder`` whose tests now fail. Raises: NoControl, GraderError, SandboxError."""
    scripts = {name.removeprefix("./") for name in control.targets.scripts}
    archive, count = io.BytesIO(), 0
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, source in (await _read(sandbox, folder, control.targets)).items():
            made = sabotaged(source, script=path.removeprefix("./") in scripts, changed=control.changed)
            if made is not None:
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(made), 0o644
                tar.addfile(entry, io.BytesIO(made))
                count += 1
    if not count:
        raise NoControl(f"no test below {folder} can be made to fail")
    return archive.getvalue()


async def _read(sandbox: Sandbox, folder: str, found: Targets) -> dict[str, bytes]:
    """The Python files that the targets mean, by path below the folder."""
    wanted = await _listed(sandbox, folder, found)
    if not 0 < len(wanted) <= MAX_FILES:
        raise NoControl(f"{len(wanted)} files of tests below {folder}: none, or too many to make fail")
    command = ["tar", "-cf", "-", "--", *wanted]
    packed = await sandbox.exec(command, cwd=folder, timeout_sec=_CALL_SEC, idempotent=True)
    if packed.truncated:
        raise NoControl(f"the tests below {folder} are too large to make fail")
    if not packed.ok:
        raise GraderError(f"the tests below {folder} cannot be read: {packed.stderr[-500:]!r}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        members = [(member.name, tar.extractfile(member)) for member in tar if member.isfile()]
        return {name: content.read() for name, content in members if content is not None}


async def _listed(sandbox: Sandbox, folder: str, found: Targets) -> list[str]:
    places = [*found.scripts, *found.tests]
    # A dotted name may be a module, a class or a method in it: every prefix that is a file counts.
    for name in found.tests:
        parts = name.split(".")
        places += ["/".join(parts[:size]) + ".py" for size in range(1, len(parts) + 1)]
    listing = 'for p in "$@"; do if [ -f "$p" ]; then printf "%s\\0" "$p"; elif [ -d "$p" ]; then '
    listing += "find \"$p\" -name .git -prune -o -name '*.py' -type f -print0; fi; done"
    command = ["sh", "-c", listing, "sh", *places]
    asked = await sandbox.exec(command, cwd=folder, timeout_sec=_CALL_SEC, idempotent=True)
    if not asked.ok:
        raise GraderError(f"the tests below {folder} cannot be listed: {asked.stderr[-500:]!r}")
    paths = {path.decode(errors="surrogateescape") for path in asked.stdout.split(b"\0") if path}
    named = {place.removeprefix("./") for place in places}
    return sorted(p for p in paths if p.removeprefix("./") in named or _TEST_MODULE.match(PurePosixPath(p).name))


def read_command(command: str) -> Targets | None:
    """The targets of a shell command; None when it is not plain or runs no Python tests.

    Plain is an ``&&`` chain of ``cd FOLDER``, ``python FILE``, ``python -m pytest|unittest ...`` and ``pytest ...``.
    """
    found, folder = Targets(), PurePosixPath()
    for words in _commands(command):
        match words:
            case ["cd", str(place)] if not place.startswith(("/", "~", "-")):
                folder /= place
            case [str(python), *rest] if _PYTHON.match(python):
                _python(rest, folder, found)
            case [str(pytest), *rest] if _PYTEST.match(pytest):
                found.tests += _places(rest, folder)
    return found if found.scripts or found.tests else None


def _commands(command: str) -> Iterator[list[str]]:
    """The words of each command of an ``&&`` chain, without assignments in front; nothing when the shell would do more."""
    try:
        words = shlex.split(command.replace("&&", " && "))
    except ValueError:
        return
    chain: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            chain.append([])
        elif _SHELL & set(word) and "::" not in word:
            return
        elif chain[-1] or not re.match(r"^\w+=", word):
            chain[-1].append(word)
    yield from chain


def _python(words: Sequence[str], folder: PurePosixPath, found: Targets) -> None:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-m":
            if rest and rest[0] in ("pytest", "unittest"):
                found.tests += _places(rest[1:], folder)
            return
        if word in _TAKES_VALUE:
            del rest[:1]
        elif not word.startswith("-"):
            if word.endswith(".py"):
                found.scripts.append(str(folder / word))
            return


def _places(words: Iterable[str], folder: PurePosixPath) -> list[str]:
    """What a runner is asked to run; everything below ``folder`` when it says nothing."""
    named = [word.partition("::")[0] for word in words if not word.startswith("-") and word != "discover"]
    return [str(folder / name) for name in named if not name.startswith("/")] or [str(folder)]
