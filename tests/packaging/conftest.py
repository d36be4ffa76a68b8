"""Both wheels, built and installed as a stranger would: a fresh venv that sees our dependencies but not this checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"


@dataclass(frozen=True, slots=True)
class Installed:
    """A venv with wheels in it. ``folder`` is a working directory outside the checkout."""

    python: Path
    folder: Path
    wheels: tuple[Path, ...]

    def run(self, *words: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        """``agentrl WORDS`` with nothing of ours in its environment but ``variables``."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SWE_", "AGENTRL_", "PYTHON"))}
        return subprocess.run(
            [str(self.python.with_name("agentrl")), *words],
            cwd=self.folder,
            env={**inherited, **variables},
            capture_output=True,
            text=True,
            check=check,
        )

    def json(self, *words: str, check: bool = True, **variables: str) -> Any:
        """What ``agentrl WORDS --json`` prints."""
        return json.loads(self.run(*words, "--json", check=check, **variables).stdout)


def build_wheel(source: Path, target: Path) -> Path:
    """The wheel of a project. No index is asked: the build backend is the one that is installed here."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def our_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of agentrl."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("our-wheel"))


@pytest.fixture(scope="session")
def example_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of examples/plugin."""
    return build_wheel(EXAMPLE, tmp_path_factory.mktemp("example-wheel"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, our_wheel: Path, example_wheel: Path) -> Installed:
    """agentrl and the example plugin, installed from their wheels."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    wheels = (our_wheel, example_wheel)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--python",
            str(python),
            "install",
            "--no-deps",
            "--no-index",
            *wheels,
        ],
        check=True,
    )
    # Dependencies come from the venv of the tests. A .pth inside a folder that a .pth names is not read, so the editable
    # install of this checkout, which is one, stays out.
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(python, folder, wheels)
