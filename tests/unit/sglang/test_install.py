"""Installing: only into environments of our own, and again when the last time did not end well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.api import EngineError
from agentrl_sglang import install as module
from agentrl_sglang.install import install, is_installed, venv_path
from agentrl_sglang.settings import SGLangSettings


def with_python(venv: Path) -> Path:
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    return venv


def test_an_environment_of_somebody_else_is_used_as_it_is(tmp_path: Path) -> None:
    assert is_installed(with_python(tmp_path / "theirs"))


async def test_it_is_not_touched(tmp_path: Path) -> None:
    theirs = with_python(tmp_path / "theirs")
    assert await install(SGLangSettings(venv=theirs)) == theirs
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_ours_counts_only_when_it_was_finished_from_this_list_of_packages(tmp_path: Path) -> None:
    venv = tmp_path / "ours"
    assert not is_installed(venv)
    marker = module._marker(with_python(venv))
    for content, usable in ((module._UNFINISHED, False), ("older list", False), (module._digest(), True)):
        marker.write_text(content)
        assert is_installed(venv) is usable


def test_the_place_is_the_setting_s_or_the_cache_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert venv_path(SGLangSettings(venv=tmp_path / "mine")) == tmp_path / "mine"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENTRL_CACHE_DIR", "~/kept")
    assert venv_path(SGLangSettings()).parent == tmp_path / "kept"


async def test_when_pip_fails_its_words_are_in_the_error_and_nothing_counts_as_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = tmp_path / "cache" / "venv"

    async def run(log_path: Path, *argv: str) -> None:
        # The real thing, but for the environment itself, which takes long to make and is not what is tested here.
        if argv[1:3] == ("-m", "venv"):
            with_python(venv)
            (venv / "bin" / "python").unlink()
            (venv / "bin" / "python").symlink_to(sys.executable)
        else:
            await real(log_path, *argv)

    real = module._run
    monkeypatch.setattr(module, "_run", run)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_TARGET": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineError, match=r"(?s)could not be installed.*ERROR: "):
        await install(SGLangSettings(venv=venv))
    assert not is_installed(venv)
    assert "several minutes" in capsys.readouterr().err


def test_stand_ins_can_be_imported_and_subclassed_but_not_called(tmp_path: Path) -> None:
    module._write_stand_ins(tmp_path)
    program = """
import importlib.metadata
import sgl_kernel, torchvision, torchaudio.transforms
from sgl_kernel import copy_all_layer_kv_cache_cpu
from torchvision.transforms.v2 import functional
from torchvision.io import ImageReadMode

class Mine(torchvision.transforms.Compose):
    def __init__(self, value):
        self.value = value

assert Mine(3).value == 3
assert functional.InterpolationMode.BICUBIC is not None
assert importlib.metadata.version("torchvision") == torchvision.__version__
assert not hasattr(sgl_kernel, "__missing_dunder__")
for call in (copy_all_layer_kv_cache_cpu, torchvision.ops.nms, functional.resize):
    try:
        call(1)
    except NotImplementedError as error:
        print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    named = [line.split(" ")[0] for line in ran.stdout.splitlines()]
    assert named == [
        "sgl_kernel.copy_all_layer_kv_cache_cpu",
        "torchvision.ops.nms",
        "torchvision.transforms.v2.functional.resize",
    ]
