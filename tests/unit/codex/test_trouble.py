"""The real Codex when something goes wrong: budgets, engines that fail, connections that break, processes that die."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from agent_rig import call

from agentrl.errors import ContextOverflow, EngineUnavailable
from agentrl.outcomes import AgentEnd
from agentrl.tools import detached
from agentrl_codex import config, harness

PROBLEM = "Please repair start.txt."


def bash(command):
    """A call of its shell."""
    return call("exec_command", cmd=command)


STEP = bash("echo step")
PING_SEC = 0.01


def all_trained(done):
    """Every recorded token is trained once."""
    assert done.report.tokens_trained == done.report.tokens_sampled


@pytest.mark.parametrize(
    ("options", "end", "turns", "refused"),
    [
        ({"budgets": {"max_turns": 2}}, AgentEnd.TURN_BUDGET, 2, "turn"),
        # The second reply is cut where the budget ends.
        ({"budgets": {"max_tokens": 150}}, AgentEnd.TOKEN_BUDGET, 2, ""),
        ({"context_tokens": 17_000}, AgentEnd.CONTEXT_BUDGET, 2, "context"),
    ],
    ids=["turns", "tokens", "context"],
)
async def test_a_budget_ends_it_at_once(make_rig, run, options, end, turns, refused):
    rig = await make_rig([STEP, bash("seq 2000"), STEP], **options)
    done = await run(rig, PROBLEM)
    assert done.result.end is end, done.result
    assert rig.session.exhausted == refused
    assert len(rig.engine.calls) == len(done.trajectory.turns) == turns
    all_trained(done)


async def test_a_context_that_overflows_while_the_stream_is_open_is_the_same(make_rig, run):
    async def late_overflow(turn, call_next):
        if turn.turns_so_far:
            await asyncio.sleep(20 * PING_SEC)
            raise ContextOverflow(9, 8)
        return await call_next(turn)

    rig = await make_rig([STEP], ping_sec=PING_SEC, middleware=(late_overflow,))
    done = await run(rig, PROBLEM)
    assert done.result.end is AgentEnd.CONTEXT_BUDGET, done.result
    assert (done.result.details["retries"], len(done.trajectory.turns)) == (0, 1)


async def test_a_reply_that_is_cut_ends_it(make_rig, run):
    rig = await make_rig(["word " * 900])
    done = await run(rig, PROBLEM)
    assert done.result.end is AgentEnd.TOKEN_BUDGET, done.result
    assert [turn.generation.finish for turn in done.trajectory.turns] == ["length"]
    all_trained(done)


async def test_its_time_ends_and_everything_that_it_started(make_rig, run, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    for module in (harness, detached):
        monkeypatch.setattr(module, "time", clock)
    rig = await make_rig([bash("touch began; sleep 4321")])
    running = asyncio.create_task(run(rig, PROBLEM, time_budget_sec=1.0))
    await rig.shell("until [ -e began ]; do sleep 0.1; done")
    clock.monotonic = lambda: 1.0
    done = await running
    assert done.result.end is AgentEnd.TIME_BUDGET
    # A process that is being taken down still has its name, but no longer a command line.
    assert await rig.shell("ls began; grep -lazE '^4321$|^[^ ]*codex$' /proc/[0-9]*/cmdline") == "began\n"
    assert len(done.samples) == 1


@pytest.mark.parametrize("fault", ["http_500", "reset", "abort"])
async def test_a_failure_of_the_engine_is_asked_again(make_rig, run, fault):
    rig = await make_rig([STEP, "Done."])
    rig.engine.fail_next(fault)
    done = await run(rig, PROBLEM)
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert len(rig.engine.calls) == 3
    assert [turn.trainable for turn in done.trajectory.turns] == [*([False] if fault == "abort" else []), True, True]
    assert len(done.samples) == 1


async def test_an_engine_that_stalls_is_waited_for(make_rig, run, monkeypatch):
    # Pings are no signs of life to it, so it must be told to wait for as long as a turn may take.
    monkeypatch.setattr(config, "IDLE_SLACK_SEC", 1.0)
    rig = await make_rig([STEP, "Done."], ping_sec=0.2)
    rig.engine.held = asyncio.Event()
    running = asyncio.create_task(run(rig, PROBLEM))
    await rig.engine.arrived.acquire()
    asyncio.get_running_loop().call_later(2.0, rig.engine.held.set)
    done = await running
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert (len(rig.engine.calls), done.result.details["retries"]) == (2, 0)
    all_trained(done)


async def test_an_engine_that_is_gone_is_no_verdict_about_the_agent(make_rig, run):
    rig = await make_rig([STEP])
    running = asyncio.create_task(run(rig, PROBLEM, SWE_CODEX_RETRIES="0"))
    for _ in range(2):
        await rig.engine.arrived.acquire()
    await rig.engine.__aexit__(None, None, None)
    with pytest.raises(EngineUnavailable, match="gave up") as error:
        await running
    assert rig.session.token not in str(error.value)


async def test_killed_while_it_waits_for_a_reply(make_rig, run):
    rig = await make_rig([STEP, STEP])
    running = asyncio.create_task(run(rig, PROBLEM))
    await rig.engine.arrived.acquire()
    rig.engine.held = asyncio.Event()
    await rig.engine.arrived.acquire()
    assert await rig.shell("pkill -9 -x codex && echo killed") == "killed\n"
    done = await running
    assert done.result.end is AgentEnd.CRASHED
    assert "no result" in done.result.message
    # The reply that nobody waited for was aborted and is nowhere.
    await asyncio.wait_for(rig.engine.aborted.acquire(), 120)
    assert len(done.trajectory.turns) == len(done.samples) == 1
    assert done.trajectory.counters["turns_dropped"] == 1


async def test_a_command_that_kills_it_is_a_crash_and_no_result(make_rig, run):
    rig = await make_rig([bash("pkill -9 -x codex; sleep 600")])
    done = await run(rig, PROBLEM)
    assert (done.result.end, done.result.details["exit_code"]) == (AgentEnd.CRASHED, 137)


@pytest.mark.parametrize("behind", [b"", b'"type":"response.in_progress"'], ids=["whole", "begun"])
async def test_a_reply_that_is_lost_on_the_way_is_sampled_anew(make_rig, run, behind):
    rig = await make_rig([STEP, STEP, "Done."], ping_sec=600)
    rig.relay.cut_next(behind)
    done = await run(rig, PROBLEM)
    assert done.result.end is AgentEnd.FINISHED, done.result
    assert done.forks == ["resampled"]
    assert [len(sample.turn_ids) for sample in done.samples] == [1, 3]
    all_trained(done)
