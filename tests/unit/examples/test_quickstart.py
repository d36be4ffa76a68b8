"""The quickstart's task is what its README says: the solution passes, doing nothing fails."""

from pathlib import Path

from agentrl.api import SandboxSpec
from agentrl.rollout.data import load_tasks
from agentrl.rollout.validate import validate
from agentrl_scaleswe.grader import ScaleSweGrader
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.tasks import ScaleSweFormat

DATA = Path(__file__).parents[3] / "examples" / "quickstart" / "tasks.jsonl"


async def test_the_task_is_fit(local_backend):
    settings = ScaleSweSettings()
    task_format, grader = ScaleSweFormat(settings), ScaleSweGrader(settings)
    machines = []

    class Opened:
        async def __aenter__(self):
            machines.append(await local_backend.create(SandboxSpec(), labels={}, lifetime_sec=600))
            return machines[-1]

        async def __aexit__(self, *_):
            await machines[-1].close()

    tasks = load_tasks(DATA, task_format, grader)
    rows = [row async for row in validate(tasks, task_format, grader, lambda task: Opened(), repeats=1, concurrency=1)]
    assert [row.reasons for row in rows] == [()]
    assert len(machines) > 2
