"""The real Claude Code when something goes wrong: budgets, engines that fail, connections that break, processes that die."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest
from claude_rig import bash, call
from places import PLACES

from agentrl.errors import EngineUnavailable
from agentrl.outcomes import AgentEnd
from agentrl.tools import detached
from agentrl_claude_code import command, harness
from agentrl_claude_code.settings import ClaudeCodeSettings

PROBLEM = "Please repair start.txt."
STEP = bash("echo step")


def all_trained(done):
    """Every recorded token is trained once."""
    assert done.report.tokens_trained == done.report.tokens_sampled


@pytest.mark.parametrize(
    ("gateway", "job", "end", "turns"),
    [
        ({}, {"max_turns": 2}, AgentEnd.TURN_BUDGET, 2),
        ({"budgets": {"max_turns": 2}}, {}, AgentEnd.TURN_BUDGET, 2),
        ({"budgets": {"max_tokens": 150}}, {}, AgentEnd.TOKEN_BUDGET, 2),
        ({"context_tokens": 14_000}, {}, AgentEnd.CONTEXT_BUDGET, 2),
    ],
    ids=["its own turns", "turns", "tokens", "context"],
)
async def test_a_budget_ends_it_at_once(make_rig, gateway, job, end, turns):
    rig = await make_rig([STEP, bash("seq 2000"), STEP], **gateway)
    done = await rig.run(PROBLEM, **job)
    assert done.result.end is end, done.result
    assert len(rig.engine.calls) == len(done.trajectory.turns) == turns
    all_trained(done)


async def test_replies_that_are_always_cut_are_a_budget_too(make_rig):
    rig = await make_rig(["word " * 900])
    done = await rig.run(PROBLEM)
    assert done.result.end is AgentEnd.TOKEN_BUDGET, done.result
    assert {turn.generation.finish for turn in done.trajectory.turns} == {"length"}
    all_trained(done)


@pytest.mark.parametrize("place", PLACES)
async def test_its_time_ends_and_everything_that_it_started(make_rig, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    for module in (harness, detached):
        monkeypatch.setattr(module, "time", clock)
    rig = await make_rig([bash("touch began; sleep 4321")])
    running = asyncio.create_task(rig.run(PROBLEM, time_budget_sec=1.0))
    await rig.shell("until [ -e began ]; do sleep 0.1; done")
    clock.monotonic = lambda: 1.0
    done = await running
    assert done.result.end is AgentEnd.TIME_BUDGET
    # A process that is being taken down still has its name, but no longer a command line.
    assert await rig.shell("ls began; grep -lazE '^4321$|^[^ ]*claude$' /proc/[0-9]*/cmdline") == "began\n"
    assert len(done.samples) == 1


@pytest.mark.parametrize("fault", ["http_500", "http_503", "reset", "no_logprobs", "abort"])
async def test_a_failure_of_the_engine_is_asked_again(make_rig, fault):
    rig = await make_rig([STEP, "Done."])
    rig.engine.fail_next(fault)
    done = await rig.run(PROBLEM)
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert done.result.details["lines"]["system.api_retry"] == 1
    assert [turn.trainable for turn in done.trajectory.turns] == [*([False] if fault == "abort" else []), True, True]
    assert len(done.samples) == 1


async def test_an_engine_that_stalls_is_waited_for(make_rig, monkeypatch):
    # On a fast clock: the program would wait 4 s without a word, the engine takes 6, the gateway says a word every 0.2.
    monkeypatch.setattr(command, "PATIENCE_SEC", 3.0)
    rig = await make_rig([STEP, "Done."], ping_sec=0.2)
    rig.engine.held = asyncio.Event()

    async def a_call_lasts():
        with suppress(TimeoutError):
            while await rig.engine.arrived.acquire():
                # On a machine that stands still words come late too: then it asks again, and that call has to last.
                await asyncio.wait_for(rig.engine.aborted.acquire(), 6.0)

    running = asyncio.create_task(rig.run(PROBLEM, turn_timeout_sec=1.0))
    await asyncio.wait([running, asyncio.create_task(a_call_lasts())], return_when=asyncio.FIRST_COMPLETED)
    rig.engine.held.set()
    done = await running
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert len(done.trajectory.turns) >= 2
    all_trained(done)


async def test_an_engine_that_is_gone_is_no_verdict_about_the_agent(make_rig):
    rig = await make_rig([STEP])
    running = asyncio.create_task(rig.run(PROBLEM, settings={"SWE_CLAUDE_RETRIES": "0"}))
    for _ in range(2):
        await rig.engine.arrived.acquire()
    await rig.engine.__aexit__(None, None, None)
    with pytest.raises(EngineUnavailable, match="gave up"):
        await running


@pytest.mark.parametrize("place", PLACES)
async def test_killed_while_it_waits_for_a_reply(make_rig):
    rig = await make_rig([STEP, STEP])
    running = asyncio.create_task(rig.run(PROBLEM))
    await rig.engine.arrived.acquire()
    rig.engine.held = asyncio.Event()
    await rig.engine.arrived.acquire()
    assert await rig.shell("pkill -9 -x claude && echo killed") == "killed\n"
    done = await running
    assert done.result.end is AgentEnd.CRASHED
    assert "no result" in done.result.message
    # The reply that nobody waited for was aborted and is nowhere.
    await asyncio.wait_for(rig.engine.aborted.acquire(), 120)
    assert len(done.trajectory.turns) == len(done.samples) == 1
    assert done.trajectory.counters["turns_dropped"] == 1


@pytest.mark.parametrize("place", PLACES)
async def test_a_command_that_kills_it_is_a_crash_and_no_result(make_rig):
    rig = await make_rig([bash("kill -9 $PPID; sleep 600")])
    done = await rig.run(PROBLEM)
    assert (done.result.end, done.result.details["exit_code"]) == (AgentEnd.CRASHED, 137)


@pytest.mark.parametrize("place", PLACES)
async def test_a_reply_that_is_lost_on_the_way_is_sampled_anew(make_rig):
    rig = await make_rig([STEP, STEP, "Done."], ping_sec=600)
    rig.relay.cut_next()
    done = await rig.run(PROBLEM)
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert done.forks == ["resampled"]
    assert [len(sample.turn_ids) for sample in done.samples] == [1, 3]
    all_trained(done)


async def test_a_reply_of_which_one_call_arrived_is_continued(make_rig):
    first = call("Write", file_path="/testbed/one.txt", content="1")
    rig = await make_rig(["Two.\n" + first + "\n" + bash("touch two.txt"), STEP, "Done."], ping_sec=600)

    async def first_ran():
        while not await rig.shell("ls one.txt"):
            await asyncio.sleep(0.05)

    rig.relay.cut_next(b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n', first_ran)
    done = await rig.run(PROBLEM)
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert await rig.shell("ls *.txt") == "one.txt\nstart.txt\n"
    # What was sampled stays whole, also the call that never ran.
    assert done.forks == []
    assert len(done.samples) == 1
    all_trained(done)


async def test_without_a_working_program_the_image_is_refused(local_backend):
    from agentrl.api import Layer, Resources, SandboxError
    from agentrl_claude_code.program import PROGRAM, layer

    made = layer(ClaudeCodeSettings())
    broken = Layer(made.name + "-broken", made.commands, {PROGRAM: b"#!/bin/sh\necho 1.0.0\n"})
    with pytest.raises(SandboxError, match=r"1\.0\.0"):
        await local_backend.prepare(None, Resources(), [broken])
