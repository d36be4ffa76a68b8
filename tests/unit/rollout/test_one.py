"""One rollout: whatever happens to it, it ends with the outcome that the vocabulary has for that."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from leap import leap
from privileges import needs_root
from repair import BREAK, CHECK, FIX, SUBMIT, bash, repair_row

from agentrl.api import AgentEnd, ExitStatus, Grade, GraderError, HarnessError, HarnessResult, Outcome
from agentrl.rollout.pool import ATTEMPTS, run_groups
from agentrl_mini_swe.harness import MiniSwe
from agentrl_mini_swe.settings import MiniSweSettings

HANG = "touch /tmp/started; sleep 600"
PATIENCE_SEC = 60


class Acting:
    """A harness that does ``act`` and needs no model."""

    runs_in = "host"

    def __init__(self, act: Any) -> None:
        self._act = act

    def layers(self):
        return ()

    async def install(self, sandbox): ...

    async def run(self, sandbox, job):
        return await self._act(sandbox, job)


# ------------------------------------------------------------------------------------------------- with a verdict


async def test_a_repaired_repository_is_solved_and_its_tokens_are_trained(bench):
    async with bench([FIX, SUBMIT]) as b:
        rollout = await b.roll()
    assert (rollout.outcome, rollout.exit_status, rollout.reward) == (Outcome.GRADED, ExitStatus.SOLVED, 1.0)
    assert rollout.agent_end is AgentEnd.FINISHED
    [sample] = rollout.samples
    sampled = [i for call in b.model.calls for i in call.output_ids]
    assert [t for t, m in zip(sample.tokens, sample.loss_mask, strict=True) if m] == sampled
    assert sample.reward == 1.0
    assert rollout.seconds.keys() == {"boot", "prepare", "agent", "collect", "grade", "total"}


async def test_the_grader_gets_a_machine_that_the_agent_never_saw(bench):
    async with bench([bash("touch /tmp/mark; echo fixed > state.txt"), SUBMIT]) as b:
        rollout = await b.roll(repair_row(check=f"test ! -e /tmp/mark && {CHECK}"))
        machines = {b.machines.made.get_nowait().id for _ in range(2)}
    assert rollout.exit_status is ExitStatus.SOLVED
    assert len(machines) == 2


@pytest.mark.parametrize(
    ("replies", "status"),
    [
        ([BREAK, SUBMIT], ExitStatus.UNSOLVED),
        ([SUBMIT], ExitStatus.EMPTY_PATCH),
        (["no command at all", SUBMIT], ExitStatus.EMPTY_PATCH),
        ([bash("head -c 20000 /dev/urandom > big.bin"), SUBMIT], ExitStatus.PATCH_TOO_LARGE),
        ([bash("rm -rf .git"), SUBMIT], ExitStatus.WORK_UNREADABLE),
        pytest.param([bash("rm -rf /usr/bin/git"), SUBMIT], ExitStatus.WORK_UNREADABLE, marks=needs_root),
    ],
)
async def test_work_that_does_not_solve_it_is_graded_zero(bench, replies, status):
    async with bench(replies, SWE_PATCH_MAX_BYTES="2000") as b:
        rollout = await b.roll()
    assert (rollout.outcome, rollout.exit_status, rollout.reward) == (Outcome.GRADED, status, 0.0)
    assert rollout.samples


async def test_tests_that_run_out_of_time_are_graded_zero(bench):
    async with bench([FIX, SUBMIT], SWE_EVAL_TIMEOUT_SEC="0.5") as b:
        rollout = await b.roll(repair_row(check="sleep 600"))
    assert (rollout.exit_status, rollout.reward) == (ExitStatus.TESTS_TIMED_OUT, 0.0)


@pytest.mark.parametrize(
    ("variable", "limit", "status"),
    [
        ("SWE_MAX_TURNS", "2", ExitStatus.TURN_BUDGET),
        ("SWE_MAX_ROLLOUT_TOKENS", "40", ExitStatus.TOKEN_BUDGET),
        ("SWE_CONTEXT_TOKENS", "400", ExitStatus.CONTEXT_BUDGET),
    ],
)
async def test_a_budget_that_runs_out_cuts_the_work_and_what_is_there_is_graded(bench, variable, limit, status):
    async with bench([FIX, bash("seq 100")], **{variable: limit}) as b:
        rollout = await b.roll()
    assert (rollout.outcome, rollout.exit_status, rollout.reward) == (Outcome.TRUNCATED, status, 1.0)
    assert rollout.grade.exit_status is ExitStatus.SOLVED
    assert rollout.samples


@pytest.mark.parametrize("said", [AgentEnd.FINISHED, AgentEnd.CRASHED, AgentEnd.TURN_BUDGET])
async def test_the_gateway_knows_which_budget_it_was_that_ended_an_agent(bench, said):
    async def until_refused(sandbox, job):
        async with aiohttp.ClientSession() as http:
            for status in (200, 429):
                body = {"model": job.model, "messages": [{"role": "user", "content": "Go on."}]}
                async with http.post(f"{job.base_url}/v1/chat/completions", json=body) as response:
                    assert response.status == status
        return HarnessResult(said)

    async with bench([FIX], harness=Acting(until_refused), SWE_MAX_ROLLOUT_TOKENS="5") as b:
        rollout = await b.roll()
    assert (rollout.exit_status, rollout.agent_end) == (ExitStatus.TOKEN_BUDGET, AgentEnd.TOKEN_BUDGET)


async def test_an_agent_that_works_too_long_is_stopped_and_graded(bench):
    budgets = {"SWE_AGENT_TIME_BUDGET_SEC": "500", "SWE_MINI_COMMAND_TIMEOUT_SEC": "600"}
    async with bench([FIX, bash(HANG)], **budgets) as b:
        rolling = asyncio.create_task(b.roll())
        await b.when_started()
        leap(500)
        rollout = await rolling
    assert (rollout.exit_status, rollout.agent_end) == (ExitStatus.TIME_BUDGET, AgentEnd.TIME_BUDGET)
    assert rollout.reward == 1.0


# -------------------------------------------------------------------------------- an agent inside, and its way out


class Inside(Acting):
    """A harness whose program runs in the sandbox."""

    runs_in = "sandbox"


ASK = """curl -s -H 'Content-Type: application/json' -d '{{"messages": [{{"role": "user", "content": "Go on."}}]}}' \
    {}/v1/chat/completions"""


@pytest.mark.parametrize("reach", ["auto", "relay"])
async def test_an_agent_inside_calls_the_gateway(bench, reach):
    ways = []

    async def ask(sandbox, job):
        answered = await sandbox.exec(ASK.format(job.base_url), timeout_sec=PATIENCE_SEC)
        direct = f"http://127.0.0.1:{b.parts.gateway.port}/health"
        ways.append((await sandbox.exec(["curl", "-s", direct], timeout_sec=PATIENCE_SEC)).ok)
        return HarnessResult(AgentEnd.FINISHED, answered.stdout.decode())

    async with bench(["I look around."], harness=Inside(ask), AGENTRL_REACH=reach) as b:
        rollout = await b.roll()
    assert "I look around." in rollout.message
    assert len(rollout.trajectory.turns) == 1
    assert ways == [reach == "auto"]


@pytest.mark.parametrize("reach", ["auto", "relay"])
async def test_what_an_agent_inside_does_not_wait_for_is_not_sampled(bench, reach):
    async def leave(sandbox, job):
        asking = asyncio.create_task(sandbox.exec(ASK.format(job.base_url), timeout_sec=PATIENCE_SEC))
        async with asyncio.timeout(PATIENCE_SEC):
            await b.model.arrived.acquire()
            asking.cancel()
            await b.model.aborted.acquire()
        with suppress(asyncio.CancelledError):
            await asking
        return HarnessResult(AgentEnd.FINISHED, "left")

    async with bench(["I look around."], harness=Inside(leave), AGENTRL_REACH=reach) as b:
        b.model.fail_next("stall")
        rollout = await b.roll()
    assert rollout.message == "left"
    assert rollout.trajectory.turns == ()


# ---------------------------------------------------------------------------------------------- without a verdict


def assert_aborted(rollout, status):
    assert (rollout.outcome, rollout.exit_status) == (Outcome.ABORTED, status), rollout.message
    assert rollout.reward is None
    assert rollout.samples == ()


async def test_a_grading_machine_that_dies_is_no_verdict(bench):
    async with bench([FIX, SUBMIT]) as b:
        rolling = asyncio.create_task(b.roll(repair_row(check=HANG)))
        await b.machines.made.get()
        b.kill(await b.when_started())
        rollout = await rolling
    assert_aborted(rollout, ExitStatus.SANDBOX_LOST)
    assert rollout.grade is None
    assert rollout.message.startswith("grade: ")


async def test_an_agents_machine_that_dies_is_lost(bench):
    async with bench([bash(HANG)]) as b:
        rolling = asyncio.create_task(b.roll())
        b.kill(await b.when_started())
        rollout = await rolling
    assert_aborted(rollout, ExitStatus.SANDBOX_LOST)
    assert len(rollout.trajectory.turns) == 1
    assert "grade" not in rollout.seconds


@pytest.mark.parametrize(
    "fault", ["http_500", "http_503", "reset", "no_logprobs", "none_logprob", "short_logprobs", "wrong_ids", "abort"]
)
async def test_an_engine_that_fails_or_breaks_its_protocol_is_no_verdict(bench, fault):
    async with bench([FIX, SUBMIT]) as b:
        b.model.fail_next(fault)
        rollout = await b.roll()
    assert_aborted(rollout, ExitStatus.ENGINE_FAILED)


async def test_a_prompt_that_does_not_fit_is_no_turn(bench):
    async with bench([FIX, SUBMIT], SWE_CONTEXT_TOKENS="50") as b:
        rollout = await b.roll()
    assert_aborted(rollout, ExitStatus.NO_TURN)
    assert rollout.agent_end is AgentEnd.CONTEXT_BUDGET
    assert b.model.calls == []


async def test_a_rollout_that_outlives_its_guard_is_ended(bench):
    async with bench([FIX], SWE_ROLLOUT_GUARD_SEC="500") as b:
        b.model.held = asyncio.Event()
        rolling = asyncio.create_task(b.roll())
        await asyncio.wait_for(b.model.arrived.acquire(), PATIENCE_SEC)
        leap(500)
        rollout = await rolling
    assert_aborted(rollout, ExitStatus.GUARD_EXPIRED)


async def test_a_task_whose_start_state_cannot_be_made_is_invalid(bench):
    row = repair_row()
    row["metadata"]["pre_commands"] = ["false"]
    async with bench([FIX]) as b:
        rollout = await b.roll(row)
    assert_aborted(rollout, ExitStatus.TASK_INVALID)


async def test_an_image_that_is_not_there_is_unavailable(bench):
    row = repair_row()
    row["metadata"]["image"] = "example.org/nothing:1"
    async with bench([FIX]) as b:
        rollout = await b.roll(row)
    assert_aborted(rollout, ExitStatus.IMAGE_UNAVAILABLE)


async def raises_as_harnesses_do(sandbox, job):
    raise HarnessError("the agent's program is gone")


async def raises_as_bugs_do(sandbox, job):
    raise KeyError("choices")


async def runs_into_a_timeout_of_its_own(sandbox, job):
    raise TimeoutError("some socket")


async def says_that_it_crashed(sandbox, job):
    return HarnessResult(AgentEnd.CRASHED, "exit code 139")


async def reports_bytes(sandbox, job):
    return HarnessResult(AgentEnd.FINISHED, details={"output": b"raw"})


async def asks_nothing(sandbox, job):
    await sandbox.exec("echo fixed > state.txt", cwd=job.workdir, timeout_sec=60)
    return HarnessResult(AgentEnd.FINISHED)


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (raises_as_harnesses_do, ExitStatus.AGENT_CRASHED),
        (raises_as_bugs_do, ExitStatus.INTERNAL_ERROR),
        (runs_into_a_timeout_of_its_own, ExitStatus.INTERNAL_ERROR),
        (says_that_it_crashed, ExitStatus.AGENT_CRASHED),
        (reports_bytes, ExitStatus.AGENT_CRASHED),
        (asks_nothing, ExitStatus.NO_TURN),
    ],
)
async def test_an_agent_program_that_fails_is_no_verdict(bench, act, status):
    async with bench([], harness=Acting(act)) as b:
        rollout = await b.roll()
    assert_aborted(rollout, status)


async def test_what_an_agent_program_reports_is_on_record(bench):
    async def reports(sandbox, job):
        return HarnessResult(AgentEnd.CRASHED, details={"usage": {"output_tokens": 3}, "tools": ("Bash", "Edit")})

    async with bench([], harness=Acting(reports)) as b:
        rollout = await b.roll()
    assert rollout.details == {"usage": {"output_tokens": 3}, "tools": ["Bash", "Edit"]}


class Judging:
    """A grader that says ``verdict``, or raises it."""

    def __init__(self, verdict: Any) -> None:
        self._verdict = verdict

    def check(self, task): ...
    def gold(self, task): ...

    async def grade(self, task, submission, open_sandbox, *, timeout_sec):
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (GraderError("the parser crashed"), ExitStatus.GRADER_FAILED),
        (Grade(float("nan"), ExitStatus.SOLVED), ExitStatus.GRADER_FAILED),
        (Grade(1.5, ExitStatus.SOLVED), ExitStatus.GRADER_FAILED),
        (Grade(1.0, ExitStatus.SOLVED, {"output": b"raw"}), ExitStatus.GRADER_FAILED),
        (Grade(1.0, ExitStatus.SOLVED, {"output": "\udcff"}), ExitStatus.GRADER_FAILED),
        (None, ExitStatus.INTERNAL_ERROR),
        (TimeoutError("some socket"), ExitStatus.INTERNAL_ERROR),
    ],
)
async def test_a_grader_that_says_no_verdict_is_no_verdict(bench, verdict, status):
    async with bench([FIX, SUBMIT], grader=Judging(verdict)) as b:
        rollout = await b.roll()
    assert_aborted(rollout, status)
    assert rollout.grade is None


async def test_words_that_are_not_text_do_not_break_the_journal(bench):
    async def act(sandbox, job):
        raise HarnessError("no such file: \udcff")

    async with bench([], harness=Acting(act)) as b:
        rollout = await b.roll()
    assert_aborted(rollout, ExitStatus.AGENT_CRASHED)
    assert "no such file: ?" in rollout.message


async def test_odd_names_among_the_restored_files_do_not_break_the_journal(bench):
    odd = bash("mkdir $'d\\xff'; touch $'d\\xff/conftest.py'; echo fixed > state.txt")
    async with bench([odd, SUBMIT]) as b:
        rollout = await b.roll()
    assert rollout.exit_status is ExitStatus.SOLVED
    assert len(rollout.grade.restored) == 1


# --------------------------------------------------------------------------------------------------------- others


async def test_a_rollout_that_fails_does_not_touch_its_group(bench):
    inner = MiniSwe(MiniSweSettings(demonstration=False))

    async def act(sandbox, job):
        if job.rollout_id == "i0-g0-r1":
            raise HarnessError("only this one")
        return await inner.run(sandbox, job)

    finished = []
    async with bench([FIX, SUBMIT], harness=Acting(act)) as b:
        task = b.parts.task_format.read(repair_row())
        [group] = await run_groups(
            [task],
            iteration=0,
            group_size=3,
            concurrency=3,
            run_one=b.run_one,
            done={},
            finished=finished.append,
        )
    assert [r.exit_status for r in group.rollouts] == [
        ExitStatus.SOLVED,
        ExitStatus.AGENT_CRASHED,
        ExitStatus.SOLVED,
    ]
    assert group.rollouts[1].attempt == ATTEMPTS
    assert len(group.graded) == 2
    assert len(finished) == 3


@pytest.mark.parametrize("phase", ["boot", "agent", "grade"])
async def test_a_cancelled_rollout_leaves_nothing_open(bench, phase):
    """The checks are the bench's: no session, no machine, and a ledger that says so."""
    replies = [bash(HANG)] if phase == "agent" else [FIX, SUBMIT]
    async with bench(replies) as b:
        rolling = asyncio.create_task(b.roll(repair_row(check=HANG if phase == "grade" else CHECK)))
        await b.machines.asked.wait()
        if phase == "grade":
            await b.machines.made.get()
        if phase != "boot":
            await b.when_started()
        rolling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rolling
