import runpy
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "plugins"


def names():
    """The names of all plugins, sorted."""
    return sorted(runpy.run_path(str(file))["NAME"] for file in FOLDER.glob("*.py"))
