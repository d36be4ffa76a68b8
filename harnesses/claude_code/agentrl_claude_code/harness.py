"""The harness: write the problem into the sandbox, run the program there, judge how it ended.

Not here: what the model is shown and how it is sampled. The program talks to the gateway, which records every token.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Literal

from agentrl.api import HarnessJob, HarnessResult, Layer, Sandbox, fresh_path, npm_missing, run_detached
from agentrl_claude_code.command import arguments, environment
from agentrl_claude_code.ending import judge
from agentrl_claude_code.program import cached, layer
from agentrl_claude_code.settings import ClaudeCodeSettings


class ClaudeCode:
    """Claude Code in the sandbox. The image needs bash and a C library that fits ``SWE_CLAUDE_PLATFORM``."""

    runs_in: Literal["host", "sandbox"] = "sandbox"

    def __init__(self, settings: ClaudeCodeSettings) -> None:
        self._settings = settings

    def layers(self) -> Sequence[Layer]:
        """The program."""
        return (layer(self._settings),)

    async def install(self, sandbox: Sandbox) -> None:
        """Nothing for each rollout."""

    async def run(self, sandbox: Sandbox, job: HarnessJob) -> HarnessResult:
        """Work until done, out of budget or crashed. Raises: SandboxError, EngineUnavailable."""
        began, problem = time.monotonic(), fresh_path()
        await sandbox.write_file(problem, job.problem.encode(errors="replace"))
        command = f"exec {shlex.join(arguments(self._settings, job))} < {problem}"
        env = environment(self._settings, job)
        left = max(0.0, job.time_budget_sec - (time.monotonic() - began))
        return judge(await run_detached(sandbox, command, cwd=job.workdir, env=env, timeout_sec=left))

    async def probe(self) -> str | None:
        """None when the program is here or can be fetched; otherwise what is missing."""
        return None if cached(self._settings).exists() else npm_missing()
