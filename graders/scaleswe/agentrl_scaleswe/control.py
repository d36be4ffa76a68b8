"""The control run: a pass is believed only if the same tests can fail.

Code under test runs in the process of its tests. It can leave early with exit code 0, patch the assertions, write the
report itself. So what passed is run once more, in another fresh sandbox, with every test of the task's Python files made
to fail: code that passes all the same has not been tested, and is not solved.

This works where it is known which Python files hold the tests: the file of ``f2p_script``, the selected files of
``swepro``, and an ``eval_cmd`` of plain commands (``cd``, ``python FILE``, ``python -m pytest|unittest ...``, ``pytest ...``;
joined by ``&&``). Elsewhere the exit code alone decides. Code that tells a control run from a real one, or whose objects
are equal to everything, is beyond it.
"""

from __future__ import annotations

import ast
import io
import re
import secrets
import shlex
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import PurePosixPath

from agentrl.api import GraderError, Sandbox, Task, patched_paths

F2P_FILE = "test_fail_to_pass.py"
MAX_FILES = 200
_PYTHON = re.compile(r"^(.*/)?python(\d(\.\d+)?)?$")
_PYTEST = re.compile(r"^(.*/)?(pytest|py\.test)$")
_TEST_MODULE = re.compile(r"^(test_.*|.*_tests?|tests?)\.py$")
_TAKES_VALUE = {"-X", "-W"}
_SHELL = set("|;&!<>(){}`$\n#*?[]")


@dataclass(slots=True)
class Targets:
    """Paths below the workdir. ``scripts`` are run by ``python FILE``; ``tests`` are files, folders or modules given to a
    runner."""

    scripts: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Control:
    """What to make fail. ``changed``: absolute paths of what the patch touches."""

    targets: Targets
    changed: tuple[str, ...]


def control_of(task: Task, patch: bytes) -> Control | None:
    """How the pass of ``patch`` can be put to the test, or None."""
    found = targets(task)
    if found is None:
        return None
    return Control(found, tuple(f"{task.workdir}/{name}" for name in patched_paths(patch)))


def targets(task: Task) -> Targets | None:
    """Where the task's Python tests are; None when that cannot be told."""
    match task.metadata:
        case {"f2p_script": str()}:
            return Targets(scripts=[F2P_FILE])
        case {"swepro": Mapping() as harness}:
            selected = [name for name in harness["selected_test_files"] if name.endswith(".py")]
            return Targets(scripts=selected) if selected else None
        case {"eval_cmd": str(command)}:
            return read_command(command)
    return None


def read_command(command: str) -> Targets | None:
    """The targets of a shell command; None when it is not plain or runs no Python tests."""
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


async def sabotage(sandbox: Sandbox, task: Task, control: Control) -> None:
    """Make the tests of the files there fail. Raises: GraderError when there is nothing that can be made to fail."""
    found = control.targets
    sources = await _read(sandbox, task, found)
    names = {name.removeprefix("./") for name in found.scripts}
    changed = {}
    for path, source in sources.items():
        made = sabotaged(source, script=path.removeprefix("./") in names, changed=control.changed)
        if made is not None:
            changed[path] = made
    if not changed:
        raise GraderError(f"task {task.id}: no test can be made to fail")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, data in changed.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    command = ["tar", "--no-same-owner", "-xf", "-", "-C", task.workdir]
    written = await sandbox.exec(command, cwd="/", stdin=archive.getvalue(), timeout_sec=60)
    if not written.ok:
        raise GraderError(f"task {task.id}: the control run cannot be prepared: {written.stderr[-500:]!r}")


async def _read(sandbox: Sandbox, task: Task, found: Targets) -> dict[str, bytes]:
    """The Python files that the targets mean, by path below the workdir; nothing when they are too many."""
    places = [*found.scripts, *found.tests]
    # A dotted name may be a module, a class or a method in it: every prefix that is a file counts.
    for name in found.tests:
        parts = name.split(".")
        places += ["/".join(parts[:size]) + ".py" for size in range(1, len(parts) + 1)]
    listing = 'for p in "$@"; do if [ -f "$p" ]; then printf "%s\\0" "$p"; elif [ -d "$p" ]; then '
    listing += "find \"$p\" -name .git -prune -o -name '*.py' -type f -print0; fi; done"
    asked = await sandbox.exec(["sh", "-c", listing, "sh", *places], cwd=task.workdir, timeout_sec=60, idempotent=True)
    paths = {path.decode(errors="surrogateescape") for path in asked.stdout.split(b"\0") if path}
    named = {place.removeprefix("./") for place in places}
    wanted = sorted(p for p in paths if p.removeprefix("./") in named or _TEST_MODULE.match(PurePosixPath(p).name))
    if not wanted or len(wanted) > MAX_FILES:
        return {}
    packed = await sandbox.exec(["tar", "-cf", "-", "--", *wanted], cwd=task.workdir, timeout_sec=60, idempotent=True)
    if not packed.ok or packed.truncated:
        return {}
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        members = [(member.name, tar.extractfile(member)) for member in tar if member.isfile()]
        return {name: content.read() for name, content in members if content is not None}


def sabotaged(source: bytes, *, script: bool, changed: Sequence[str] = ()) -> bytes | None:
    """A Python file whose tests all fail. One without tests that is run as a script fails at its end; else: None."""
    try:
        text = source.decode()
        tree = ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return None
    mark = f"_control_{secrets.token_hex(8)}"
    definitions = [node for node in _module_level(tree.body) if _holds_tests(node)]
    if not definitions:
        stub = _stub("script").replace("CHANGED", repr(list(changed))).replace("SOURCE", ascii(text))
        return stub.encode() if script else None
    lines = text.splitlines(keepends=True)
    for node in sorted(definitions, key=lambda node: node.lineno, reverse=True):
        lines.insert(node.lineno - 1, f"{' ' * node.col_offset}@{mark}\n")
    lines.insert(_after_future(tree), _stub("tests").replace("CONTROL", mark))
    return "".join(lines).encode()


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _module_level(body: Iterable[ast.stmt]) -> Iterator[_Definition]:
    """Functions and classes that a module defines, also under its conditions."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _module_level(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def _holds_tests(node: _Definition) -> bool:
    if not isinstance(node, ast.ClassDef):
        return node.name.startswith("test")
    own = (n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(name.startswith("test") for name in own) or bool(node.bases and "test" in node.name.lower())


def _after_future(tree: ast.Module) -> int:
    """How many lines stand before the first statement that may be anything."""
    line = 0
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        line = node.end_lineno or line
    return line


def _stub(name: str) -> str:
    return files(__package__).joinpath(f"control_{name}.txt").read_text()
