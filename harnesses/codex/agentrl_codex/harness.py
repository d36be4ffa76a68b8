"""The harness: write config and problem into the sandbox, run the program there, judge how it ended.

Not here: what the model is shown and how it is sampled. The program talks to the gateway, which records every token.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Literal

from agentrl.api import HarnessJob, HarnessResult, Layer, Sandbox, npm_missing, run_detached
from agentrl_codex.config import KEY, config, script
from agentrl_codex.ending import judge
from agentrl_codex.program import HOMES, cached, layer
from agentrl_codex.settings import CodexSettings


class Codex:
    """Codex in the sandbox. The image needs bash."""

    runs_in: Literal["host", "sandbox"] = "sandbox"

    def __init__(self, settings: CodexSettings) -> None:
        self._settings = settings

    def layers(self) -> Sequence[Layer]:
        """The program."""
        return (layer(self._settings),)

    async def install(self, sandbox: Sandbox) -> None:
        """Nothing for each rollout."""

    async def run(self, sandbox: Sandbox, job: HarnessJob) -> HarnessResult:
        """Work until done, out of budget or crashed. Raises: SandboxError, EngineUnavailable."""
        began = time.monotonic()
        # Not in the temp folder: there it would not bring its apply_patch to the agent's commands.
        home = f"{HOMES}/{secrets.token_hex(12)}"
        await self._write(sandbox, job, home)
        left = max(0.0, job.time_budget_sec - (time.monotonic() - began))
        done = await run_detached(sandbox, script(home), cwd=job.workdir, env={KEY: job.api_key}, timeout_sec=left)
        return judge(done, job.api_key)

    async def _write(self, sandbox: Sandbox, job: HarnessJob, home: str) -> None:
        files = {
            "codex/config.toml": config(self._settings, job, home),
            "instructions": self._settings.instructions,
            "problem": job.problem,
        }
        for name, text in files.items():
            await sandbox.write_file(f"{home}/{name}", text.encode(errors="replace"), mode=0o600)

    async def probe(self) -> str | None:
        """None when the program is here or can be fetched; otherwise what is missing."""
        return None if cached(self._settings).is_dir() else npm_missing()
