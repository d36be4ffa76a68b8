"""What an extra of a distribution asks for and whether it is installed, read from metadata: nothing is imported."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def missing_requirements(distribution: str, extra: str) -> tuple[str, ...]:
    """One clause for each requirement of ``distribution[extra]`` that is absent or has a wrong version.

    A distribution without metadata, or without that extra, asks for nothing.
    """
    return tuple(clause for requirement in _requirements(distribution, extra) if (clause := _lacking(requirement)))


def _requirements(distribution: str, extra: str) -> Iterator[Requirement]:
    """What the extra adds on this platform; ``name[other]`` of the same distribution is followed."""
    try:
        lines = metadata.requires(distribution) or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": canonicalize_name(extra)}):
            continue
        if canonicalize_name(requirement.name) == canonicalize_name(distribution):
            for other in requirement.extras:
                yield from _requirements(distribution, other)
        else:
            yield requirement


def _lacking(requirement: Requirement) -> str:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{requirement.name} {version} is installed, {requirement.specifier} is needed"
