"""A task's ``environment/Dockerfile`` as an image, a layer on top of it, and what the image would remember.

The layer is baked by the backend once per digest, like any other. Understood: one stage with FROM, RUN, COPY and ADD of
local files, WORKDIR, ENV, ARG and what only describes an image. Anything else (several stages, mounts, here-documents,
another user, downloads by ADD) is an error that names the line: build such an image elsewhere and name it in ``docker_image``.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentrl.api import Layer, RowError

CONTEXT = "/var/tmp/agentrl-context"
_DESCRIPTIVE = {"LABEL", "MAINTAINER", "EXPOSE", "CMD", "ENTRYPOINT", "STOPSIGNAL", "HEALTHCHECK", "VOLUME"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

# copy DEST SOURCE...: as COPY does, the contents of a folder and not the folder.
_COPY = r"""copy() {
    dest=$1; shift
    many=; [ $# -gt 1 ] && many=1
    for source; do
        if [ -d "$source" ]; then mkdir -p "$dest" && cp -R "$source/." "$dest/"
        elif [ -n "$many" ] || [ -d "$dest" ] || [ "${dest%/}" != "$dest" ]; then mkdir -p "$dest" && cp "$source" "$dest/"
        else mkdir -p "$(dirname "$dest")" && cp "$source" "$dest"
        fi || exit 1
    done
}
"""


@dataclass(slots=True)
class Recipe:
    """What a Dockerfile says. ``workdir`` is empty when it names none. ``layer`` is None when nothing is built."""

    image: str = ""
    workdir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    layer: Layer | None = None


def read_dockerfile(path: Path) -> Recipe:
    """Raises: RowError (not there, or not understood)."""
    recipe = Recipe()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RowError(f"{path}: {error}") from error
    for number, word, rest in _instructions(text):
        try:
            _apply(recipe, word, rest)
        except ValueError as error:
            raise RowError(f"{path}:{number}: {word}: {error}") from error
    if not recipe.image:
        raise RowError(f"{path}: there is no FROM")
    if recipe.commands:
        recipe.layer = _layer(path.parent, recipe.commands)
    return recipe


def _layer(context: Path, commands: Sequence[str]) -> Layer:
    archive = f"{CONTEXT}/context.tar"
    unpack = f"mkdir -p {CONTEXT}/files && tar -C {CONTEXT}/files --no-same-owner -xpf {archive}"
    return Layer(
        f"harbor-{context.parent.name}",
        commands=(unpack, *commands, f"rm -rf {CONTEXT}"),
        files={archive: pack(context)},
    )


def pack(folder: Path) -> bytes:
    """A folder as a tar archive: the same files give the same bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_plain)
    return made.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number, instruction, the rest), with continued lines joined and comments gone."""
    started, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        started = started if parts else number
        parts.append(line.rstrip().removesuffix("\\"))
        if line.rstrip().endswith("\\"):
            continue
        word, _, rest = " ".join(part.strip() for part in parts).partition(" ")
        parts = []
        yield started, word.upper(), rest.strip()


def _apply(recipe: Recipe, word: str, rest: str) -> None:
    if word in _DESCRIPTIVE:
        return
    if word not in _VERBS:
        raise ValueError("this instruction is not understood")
    if "<<" in rest and word in ("RUN", "COPY", "ADD"):
        raise ValueError("here-documents are not understood")
    if word not in ("FROM", "ARG") and not recipe.image:
        raise ValueError("there is no FROM above")
    _VERBS[word](recipe, rest)


def _from(recipe: Recipe, rest: str) -> None:
    words = rest.split()
    if recipe.image:
        raise ValueError("several stages are not understood")
    if not words or words[0].startswith("--"):
        raise ValueError("flags are not understood")
    recipe.image = _expanded(recipe, words[0])


def _workdir(recipe: Recipe, rest: str) -> None:
    recipe.workdir = str(PurePosixPath("/", recipe.workdir, _expanded(recipe, rest)))
    recipe.commands.append(f"mkdir -p {shlex.quote(recipe.workdir)}")


def _env(recipe: Recipe, rest: str) -> None:
    # What refers to the image's own variables (PATH above all) is known in the sandbox only.
    for name, value in _pairs(rest):
        recipe.env[name] = _expanded(recipe, value)


def _arg(recipe: Recipe, rest: str) -> None:
    for word in shlex.split(rest):
        name, _, value = word.partition("=")
        recipe.args[name] = value


def _user(recipe: Recipe, rest: str) -> None:
    if rest.split(":")[0] not in ("root", "0"):
        raise ValueError("another user than root is not understood")


def _run(recipe: Recipe, rest: str) -> None:
    if rest.startswith("--"):
        raise ValueError("flags are not understood")
    _in_place(recipe, shlex.join(_json_words(rest) or ["sh", "-c", rest]))


def _copy(recipe: Recipe, rest: str) -> None:
    words = _json_words(rest) or shlex.split(rest)
    flags = [word for word in words if word.startswith("--")]
    if any(not flag.startswith(("--chmod=", "--chown=root", "--chown=0")) for flag in flags):
        raise ValueError(f"{' '.join(flags)} is not understood")
    *sources, target = [_expanded(recipe, word) for word in words if not word.startswith("--")]
    if not sources or any("://" in source or source.endswith((".tar.gz", ".tgz")) for source in sources):
        raise ValueError("only plain files and folders are understood")
    slash = "/" if target.endswith(("/", ".")) else ""
    inside = shlex.quote(str(PurePosixPath("/", recipe.workdir, target)) + slash)
    found = " ".join(f"{CONTEXT}/files/" + _globbed(source.lstrip("/")) for source in sources)
    command = f"{_COPY}copy {inside} {found}"
    for flag in flags:
        if mode := flag.partition("--chmod=")[2]:
            command += f"\nchmod -R {shlex.quote(mode)} {inside}"
    _in_place(recipe, command)


def _in_place(recipe: Recipe, command: str) -> None:
    exports = "".join(f'export {name}="{_in_quotes(value)}"\n' for name, value in {**recipe.args, **recipe.env}.items())
    recipe.commands.append(f"set -e\n{exports}cd {shlex.quote(recipe.workdir or '/')}\n{command}")


_VERBS: dict[str, Callable[[Recipe, str], None]] = {
    "FROM": _from,
    "RUN": _run,
    "COPY": _copy,
    "ADD": _copy,
    "WORKDIR": _workdir,
    "ENV": _env,
    "ARG": _arg,
    "USER": _user,
    "SHELL": _user,
}


def _expanded(recipe: Recipe, text: str) -> str:
    """``$NAME`` of the file's own ENV and ARG; others stay as they are."""
    known = {**recipe.args, **recipe.env}
    return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
    """``A=1 B="2 3"``, or the old ``A 1 and the rest``."""
    name, _, value = rest.partition(" ")
    if "=" not in name:
        yield name, value.strip()
        return
    for word in shlex.split(rest):
        key, _, value = word.partition("=")
        yield key, value


def _json_words(rest: str) -> list[str] | None:
    if not rest.startswith("["):
        return None
    try:
        return [str(word) for word in json.loads(rest)]
    except ValueError:
        return None


def _globbed(path: str) -> str:
    """Quoted but for what a shell would fill in."""
    return "".join(char if char in "*?[]" else shlex.quote(char) for char in path)


def _in_quotes(value: str) -> str:
    return re.sub(r'(["\\`])', r"\\\1", value)
