"""The engine as a process: it serves, it dies with its reasons told, and it knows no secrets."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from agentrl.api import EngineError, EngineSpec
from agentrl_engine_local.launcher import LocalEngine
from agentrl_engine_local.settings import LocalEngineSettings


def spec(folder: Path, tmp_path: Path) -> EngineSpec:
    return EngineSpec(folder, 128, "float32", 0, tmp_path / "engine.log")


def launcher() -> LocalEngine:
    return LocalEngine(LocalEngineSettings(threads=1, slots=2, start_sec=600))


async def test_it_serves_and_stops_with_all_its_processes(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "secret-of-ours")
    running = await launcher().start(spec(llama, tmp_path))
    supervisor = running.process.process.pid
    server = int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text())
    for pid in (supervisor, server):
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"secret-of-ours" not in variables
        assert b"PATH=" in variables
    async with aiohttp.ClientSession() as http, http.get(f"{running.url}/server_info") as response:
        info = await response.json()
    assert (info["context_length"], info["dtype"], info["max_running_requests"]) == (128, "float32", 2)
    await running.aclose()
    await running.aclose()
    assert not Path(f"/proc/{server}").exists()


async def test_what_killed_it_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"(?s)ended before it served.*no config\.json"):
        await launcher().start(spec(tmp_path, tmp_path))


async def test_it_can_start_here() -> None:
    assert await launcher().probe() is None
