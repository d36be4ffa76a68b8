"""The local backend against the conformance kit, as whoever runs the tests and, if that is root, as an ordinary user too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conformance import assert_conforms, each_check

NOBODY = 65534


@each_check()
async def test_conformance(local_backend, check):
    await assert_conforms(check, local_backend)


def as_nobody(*argv):
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *argv]


def python_of_nobody():
    """An interpreter of our version that an ordinary user may run; the one under our home may be closed to others."""
    version = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    for python in (sys.executable, "/usr/bin/python3"):
        if (
            Path(python).exists()
            and subprocess.run(as_nobody(python, "-c", version), capture_output=True).returncode == 0
        ):
            return python
    return None


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_conformance_as_an_ordinary_user(tmp_path_factory):
    python = python_of_nobody()
    if python is None:
        pytest.skip("no interpreter of this version that an ordinary user may run")
    paths = ":".join(path for path in sys.path if path)
    files = subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip()
    os.chown(files, NOBODY, NOBODY)
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={files}/t",
        f"{__file__}::test_conformance",
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "HOME": files}
    try:
        run = subprocess.run(
            as_nobody(*command), env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2]
        )
    finally:
        shutil.rmtree(files)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
