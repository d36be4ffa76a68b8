"""Running ``tests/test.sh`` and reading the reward that it wrote.

The tests arrive only now. What a reward file said before is gone. The exit code counts for nothing; ``reward.json`` (an object
of finite numbers) is preferred to ``reward.txt`` (one finite number), and neither, or one that cannot be read, is no verdict.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from agentrl.api import (
    Control,
    ExecResult,
    FileError,
    FileMissing,
    GraderError,
    Sandbox,
    SandboxError,
    Task,
    kill_agent_processes,
    run_detached,
    sabotage,
)
from agentrl_harbor.carry import empty, unpack
from agentrl_harbor.dockerfile import pack

LOGS = "/logs/verifier"
TESTS = "/tests"
MAX_REWARD_BYTES = 1 << 20


class NoReward(GraderError):
    """The tests wrote no reward, or something that is none."""


async def run_tests(sandbox: Sandbox, task: Task, *, timeout_sec: float, control: Control | None) -> ExecResult:
    """Upload the tests and run them to their end, made to fail for a ``control``. Raises: GraderError, SandboxError."""
    for folder in (LOGS, "/logs/agent", "/logs/artifacts", TESTS):
        await empty(sandbox, folder)
    await unpack(sandbox, TESTS, pack(Path(task.metadata["folder"], "tests")))
    if control is not None:
        await sabotage(sandbox, TESTS, control)
    command = f"chmod +x {TESTS}/test.sh; {TESTS}/test.sh 2>&1 | tee {LOGS}/test-stdout.txt; exit ${{PIPESTATUS[0]}}"
    env = {**task.env, **task.metadata["verifier_env"]}
    try:
        result = await run_detached(sandbox, command, cwd=task.workdir, env=env, timeout_sec=timeout_sec)
    except SandboxError as error:
        if type(error) is not SandboxError:
            raise
        raise GraderError(f"the tests of task {task.id} left no verdict: {error}") from error
    await kill_agent_processes(sandbox)
    return result


async def read_rewards(sandbox: Sandbox, task: Task) -> dict[str, float]:
    """What the tests wrote, by name; ``reward.txt`` is called ``reward``. Raises: NoReward, SandboxError."""
    for name in ("reward.json", "reward.txt"):
        try:
            data = await sandbox.read_file(f"{LOGS}/{name}", max_bytes=MAX_REWARD_BYTES)
        except FileMissing:
            continue
        except FileError as error:
            raise NoReward(f"task {task.id}: {name} cannot be read: {error}") from error
        try:
            return _object(data) if name == "reward.json" else {"reward": _number(data.decode().strip())}
        except (ValueError, RecursionError) as error:
            raise NoReward(f"task {task.id}: {name} holds no reward: {error}: {data[:200]!r}") from error
    raise NoReward(f"task {task.id}: its tests wrote neither reward.json nor reward.txt")


def chosen(task: Task, rewards: Mapping[str, float]) -> float:
    """The one that counts: ``reward``, or the only one. Raises: GraderError (several, or outside [0, 1])."""
    if "reward" not in rewards and len(rewards) != 1:
        raise GraderError(
            f"task {task.id}: none of its rewards is called `reward`: {', '.join(rewards) or 'no reward'}"
        )
    reward = rewards.get("reward", next(iter(rewards.values())))
    if not 0.0 <= reward <= 1.0:
        raise GraderError(f"task {task.id}: the reward {reward:g} is not between 0 and 1")
    return reward


def _object(data: bytes) -> dict[str, float]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {name: _number(number) for name, number in value.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number
