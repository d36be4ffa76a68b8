"""How a check is judged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agentrl.errors import SandboxTransient
from agentrl.testing.check import applies, checks, judge, lacking, with_known
from agentrl.types import Capabilities

NOTHING = Capabilities(users=False, network_policy=False, resources=frozenset(), snapshot=False, reach=frozenset())
BARE = SimpleNamespace(capabilities=NOTHING)


async def holds(_backend):
    """Kept."""


async def breaks(_backend):
    raise AssertionError("seen")


async def fails(_backend):
    raise SandboxTransient("connection reset")


async def hangs(_backend):
    await asyncio.Event().wait()


def one(function, needs="", known=""):
    (check,) = checks(function, needs=needs)
    return replace(check, known=known)


@pytest.mark.parametrize(
    ("check", "outcome", "reason"),
    [
        (one(holds), "passed", ""),
        (one(breaks), "failed", "seen"),
        (one(fails), "failed", "SandboxTransient: connection reset"),
        (one(holds, needs="users pids"), "skipped", "not declared: users, pids"),
        (one(breaks, known="too slow"), "known", "too slow"),
        (
            one(holds, known="too slow"),
            "failed",
            "it passes, although it is known to fail (too slow): take it off the list",
        ),
    ],
)
async def test_verdicts(check, outcome, reason):
    verdict = await judge(check, BARE)
    assert (verdict.check, verdict.outcome, verdict.reason) == (check.name, outcome, reason)
    assert (verdict.error is None) == (outcome in ("passed", "skipped"))


async def test_a_check_that_hangs_has_failed():
    verdict = await judge(one(hangs), BARE, limit_sec=0.05)
    assert (verdict.outcome, verdict.reason) == ("failed", "no end within 0.05 s")
    assert (await judge(one(hangs, known="no marker"), BARE, limit_sec=0.05)).outcome == "known"


async def test_cancelling_reaches_the_check():
    ended = asyncio.Event()

    async def cleans_up(_backend):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    judging = asyncio.create_task(judge(one(cleans_up), BARE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    assert ended.is_set()


@pytest.mark.parametrize(
    ("needs", "capabilities", "applied"),
    [
        ("", NOTHING, True),
        ("reach", NOTHING, False),
        ("reach", replace(NOTHING, reach=frozenset({"bridge"})), True),
        ("reach", replace(NOTHING, reach=frozenset({"tunnel"})), False),
        ("tunnel", replace(NOTHING, reach=frozenset({"tunnel"})), True),
        ("users network_policy", replace(NOTHING, users=True), False),
        ("users network_policy", replace(NOTHING, users=True, network_policy=True), True),
        ("memory_mb", replace(NOTHING, resources=frozenset({"cpus"})), False),
        ("python3", NOTHING, True),
    ],
)
def test_needs_are_capabilities_and_programs(needs, capabilities, applied):
    assert applies(one(holds, needs=needs), capabilities) is applied


async def test_programs_are_looked_for_in_the_image(local_backend):
    assert (
        await lacking(one(holds, needs="cat no-such-program sh"), local_backend) == "not in the image: no-such-program"
    )
    assert await lacking(one(holds, needs="cat sh"), local_backend) == ""


def test_only_known_names_are_known():
    (marked, other) = with_known(checks(holds, breaks), {"breaks": "why"})
    assert (marked.known, other.known) == ("", "why")
    with pytest.raises(KeyError, match="typo"):
        with_known(checks(holds), {"typo": "why"})
