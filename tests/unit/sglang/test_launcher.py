"""Supervising a server, with a small program in the place of SGLang's interpreter. The real one is in tests/contracts."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from agentrl.api import EngineError, EngineSpec
from agentrl_sglang import launcher as module
from agentrl_sglang.launcher import SGLangLauncher
from agentrl_sglang.settings import SGLangSettings

SERVER = """#!{python}
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def venv(folder: Path, program: str) -> Path:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(program)
    python.chmod(0o755)
    return folder


@pytest.fixture
def spec(tmp_path: Path) -> EngineSpec:
    return EngineSpec(tmp_path / "model", 4096, "float32", 17, tmp_path / "sglang.log")


async def told(tmp_path: Path, spec: EngineSpec, **settings: object) -> dict:
    """What the program sees when the launcher starts it."""
    folder = venv(tmp_path / "venv", SERVER.format(python=sys.executable))
    running = await SGLangLauncher(SGLangSettings(venv=folder, **settings)).start(spec)
    try:
        async with aiohttp.ClientSession() as http, http.get(running.url) as response:
            return json.loads(await response.text())
    finally:
        await running.aclose()


async def test_a_cpu_server_gets_the_flags_that_it_needs(
    tmp_path: Path, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    seen = await told(tmp_path, spec, flags="--log-level 'warning'", threads=3)
    argv = " ".join(seen["argv"])
    assert seen["argv"][:2] == ["-m", "sglang.launch_server"]
    for flag in ("--dtype float32", "--context-length 4096", "--random-seed 17", "--device cpu", "--sleep-on-idle"):
        assert flag in argv
    assert argv.endswith("--log-level warning")
    assert seen["env"]["OMP_NUM_THREADS"] == "3"


async def test_a_gpu_server_decides_for_itself(
    tmp_path: Path, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    seen = await told(tmp_path, spec)
    assert not {"--device", "--max-total-tokens", "--attention-backend"} & set(seen["argv"])
    assert "OMP_NUM_THREADS" not in seen["env"]


async def test_it_learns_no_secrets(tmp_path: Path, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "secret-of-ours")
    seen = await told(tmp_path, spec)
    assert "secret-of-ours" not in seen["env"].values()
    assert seen["env"]["PATH"].startswith(f"{tmp_path / 'venv' / 'bin'}:")


async def test_what_killed_it_is_in_the_error(tmp_path: Path, spec: EngineSpec) -> None:
    folder = venv(tmp_path / "venv", "#!/bin/sh\necho no such device\nexit 3\n")
    with pytest.raises(EngineError, match=r"(?s)ended with code 3 before it served.*no such device"):
        await SGLangLauncher(SGLangSettings(venv=folder)).start(spec)


async def test_one_that_never_serves_is_stopped(tmp_path: Path, spec: EngineSpec) -> None:
    folder = venv(tmp_path / "venv", "#!/bin/sh\nsleep 600\n")
    with pytest.raises(EngineError, match=r"did not serve within 1 s"):
        await SGLangLauncher(SGLangSettings(venv=folder, start_sec=1)).start(spec)
    assert not [environ for environ in Path("/proc").glob("[0-9]*/environ") if bytes(folder) in read(environ)]


def read(file: Path) -> bytes:
    """Nothing where it is not ours, or gone."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


async def test_probe_tells_of_an_environment_without_sglang(tmp_path: Path) -> None:
    folder = venv(tmp_path / "venv", "#!/bin/sh\n")
    assert "pip install sglang" in str(await SGLangLauncher(SGLangSettings(venv=folder)).probe())
    (folder / "lib" / "python3.11" / "site-packages" / "sglang").mkdir(parents=True)
    assert await SGLangLauncher(SGLangSettings(venv=folder)).probe() is None
