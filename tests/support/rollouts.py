"""Rollouts for tests, made from scripted turns the way a gateway would record them."""

from __future__ import annotations

from agentrl.outcomes import RULES, AgentEnd, ExitStatus
from agentrl.types import EngineCall, Generation, Grade, Rollout, Sample, Trajectory, Turn


def turn(
    number: int, parent: Turn | None, new_ids: tuple[int, ...], ids: tuple[int, ...], prompt: tuple[int, ...], **kw
):
    logprobs = tuple(-0.25 * (number + 1) - i / 8 for i in range(len(ids)))
    generation = Generation(f"call-{number}", ids, logprobs, kw.pop("finish", "stop"), "1", "1")
    return Turn(f"turn-{number}", parent.id if parent else None, new_ids, generation, len(prompt), **kw)


def call(t: Turn, prompt: tuple[int, ...]) -> EngineCall:
    g = t.generation
    return EngineCall(g.request_id, prompt, g.ids, g.logprobs, g.finish, g.weight_version)


def two_turns(name: str = "i0-g0-r0", *, iteration: int = 0, reward: float | None = 1.0, status=ExitStatus.SOLVED):
    """A rollout of two turns in one chain and its one sample."""
    first = turn(0, None, (1, 2, 3), (4, 5), (1, 2, 3))
    prompt = (1, 2, 3, 4, 5, 6)
    second = turn(1, first, (6,), (7, 8, 9), prompt)
    tokens = (*prompt, 7, 8, 9)
    sample = Sample(
        rollout_id=name,
        index=0,
        tokens=tokens,
        loss_mask=(0, 0, 0, 1, 1, 0, 1, 1, 1),
        logprobs=(0.0, 0.0, 0.0, *first.generation.logprobs, 0.0, *second.generation.logprobs),
        loss_weight=1.0,
        reward=reward or 0.0,
        turn_ids=("turn-0", "turn-1"),
        weight_versions=("1",),
    )
    return Rollout(
        id=name,
        group_id=name.rpartition("-")[0],
        task_id="task",
        level="level-1",
        iteration=iteration,
        outcome=RULES[status].outcome,
        exit_status=status,
        agent_end=AgentEnd.FINISHED,
        reward=reward,
        grade=None if reward is None else Grade(reward, status, {"tests": 3}, ("tests/test_a.py",)),
        samples=() if reward is None else (sample,),
        trajectory=Trajectory((first, second), (call(first, (1, 2, 3)), call(second, prompt)), {"retries": 1}),
        seconds={"total": 1.5},
        message="done",
        details={"num_turns": 2, "usage": {"output_tokens": 5}},
    )
