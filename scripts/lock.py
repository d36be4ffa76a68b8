"""Writes requirements/demo.txt and requirements/dev.txt: what agentrl[demo] and agentrl[dev] need, as installed here.

Run it in an environment in which all tests pass: ``.venv/bin/python scripts/lock.py``. The files are complete, so that
scripts/setup.sh installs them without resolving anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent.parent / "requirements"
HEAD = "# Made by scripts/lock.py: agentrl[{extra}] with everything below it. torch is installed first, with its own libraries.\n"
BUILD = ("hatchling", "editables")


def closure(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> Iterator[str]:
    """``name==version`` of a distribution's requirements, all the way down; ``extras`` of the distribution count."""
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        for extra in extras or {""}:
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                yield from _one(requirement, seen)
                break


def _one(requirement: Requirement, seen: set[tuple[str, str]]) -> Iterator[str]:
    name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
    key = (name, ",".join(sorted(wanted)))
    if key in seen:
        return
    seen.add(key)
    if name != "agentrl":
        version = metadata.version(name).partition("+")[0]  # a local build such as +cpu is chosen by the machine
        yield f"{metadata.metadata(name)['Name']}=={version}"
    yield from closure(name, wanted, seen)


def main() -> None:
    """Write both files."""
    for extra in ("demo", "dev"):
        pins = set(closure("agentrl", frozenset({extra}), set()))
        pins |= {pin for name in BUILD for pin in _one(Requirement(name), set())}
        (FOLDER / f"{extra}.txt").write_text(HEAD.format(extra=extra) + "\n".join(sorted(pins, key=str.lower)) + "\n")


if __name__ == "__main__":
    main()
