import sys, pytest
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from test_detached import *
from test_processes import *
from test_upload import *
from wired_machines import wired
from agentrl.api import SandboxSpec

@pytest.fixture
async def sandbox(local_backend):
    machine = await local_backend.create(SandboxSpec(), labels={"agentrl-run": "test"}, lifetime_sec=300)
    yield wired(machine)
    await machine.close()
