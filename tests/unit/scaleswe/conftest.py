"""A small task, its protocol, and fresh sandboxes to grade it in."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from agentrl.api import SandboxSpec
from agentrl_scaleswe.grader import ScaleSweGrader
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.tasks import ScaleSweFormat

# ``check.py`` is the test: it exits 0 when calc.add adds.
MAKE = """\
printf 'def add(a, b):\\n    return a - b\\n' >calc.py
mkdir -p tests
printf 'import sys\\nsys.path.insert(0, ".")\\nimport helper\\nimport calc\\nsys.exit(calc.add(2, 3) != helper.FIVE)\\n' >tests/check.py
printf 'FIVE = 5\\n' >tests/helper.py
printf 'built\\n' >artefact.o
"""
GOLD = """\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b"""


@pytest.fixture
def protocol():
    return ScaleSweFormat(ScaleSweSettings(pre_commands_timeout_sec=60))


@pytest.fixture
def grader():
    return ScaleSweGrader(ScaleSweSettings(pre_commands_timeout_sec=60))


@pytest.fixture
def task(protocol):
    """Makes a task from the small row, with changes to its metadata."""

    def make(**changes):
        metadata = {
            "instance_id": "calc-1",
            "workdir": "/work/calc",
            "problem_statement": "add must add",
            "pre_commands": MAKE,
            "eval_cmd": "python3 tests/check.py",
            "gold_patch": GOLD,
        }
        return protocol.read({"prompt": "", "label": "", "metadata": {**metadata, **changes}})

    return make


@pytest.fixture
def open_sandbox(local_backend):
    """Opens fresh sandboxes; ``opened`` counts them, ``last`` is the newest."""

    @asynccontextmanager
    async def open_one(*_task):
        machine = await local_backend.create(SandboxSpec(), labels={"agentrl-run": "test"}, lifetime_sec=3600)
        open_one.opened += 1
        open_one.last = machine
        try:
            yield machine
        finally:
            await machine.close()

    open_one.opened = 0
    return open_one


@pytest.fixture
def submit(protocol, open_sandbox):
    """What an agent that runs ``script`` in the task's workdir submits."""

    async def work(task, script):
        async with open_sandbox() as machine:
            prepared = await protocol.prepare(machine, task)
            result = await machine.exec(script, cwd=task.workdir, timeout_sec=60)
            assert result.ok, result.stderr.decode()
            return await protocol.collect(machine, task, prepared)

    return work
