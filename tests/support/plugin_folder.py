"""A folder on sys.path with real modules and real distributions in it, for tests of how plugins are found."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class PluginFolder:
    """Writes what an installer would have written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def module(self, name: str, source: str) -> str:
        (self.path / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        return name

    def distribution(
        self, name: str, version: str = "1.0", *, points: dict[str, str] | None = None, requires: Sequence[str] = ()
    ) -> None:
        info = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        extras = sorted({line.partition("extra == '")[2].partition("'")[0] for line in requires} - {""})
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        lines += [f"Provides-Extra: {extra}" for extra in extras]
        lines += [f"Requires-Dist: {line}" for line in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        entries = [f"{point} = {module}" for point, module in (points or {}).items()]
        (info / "entry_points.txt").write_text("\n".join(["[agentrl]", *entries]) + "\n")


@contextmanager
def plugin_folder(path: Path) -> Iterator[PluginFolder]:
    """Importable while the block runs; what was imported from it is forgotten afterwards."""
    sys.path.insert(0, str(path))
    try:
        yield PluginFolder(path)
    finally:
        sys.path.remove(str(path))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{path}/"):
                del sys.modules[name]


OFFER = """
    from agentrl.api import hookimpl

    @hookimpl
    def agentrl_register_{kind}(register):
        register("{name}", "{target}")
"""


def offering(kind: str, name: str, target: str = "somewhere:Thing") -> str:
    """The source of a plugin with one offer."""
    return OFFER.format(kind=kind, name=name, target=target)
