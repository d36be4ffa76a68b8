from pathlib import Path


def packages(root):
    """The names of the folders under ``root`` that are regular packages."""
    return sorted(marker.parent.name for marker in Path(root).glob("*/__init__.py"))
