"""A task's layers are baked before its machine boots."""

from __future__ import annotations

from agentrl.lease import Lease
from agentrl.types import Layer, SandboxSpec, Task


async def test_layers_are_baked_and_gone_from_the_spec(local_backend, tmp_path):
    lease = Lease(local_backend, run_id="test", ledger=tmp_path / "ledger.jsonl")
    layers = (Layer("one", ("echo 1 >/opt/one",)), Layer("two", files={"/opt/two": b"2\n"}))
    task = Task("t", "p", "-", "/opt", image="host", layers=layers, env={"THREE": "3"})
    async with lease.open(task.machine, rollout_id="r", lifetime_sec=600) as sandbox:
        found = await sandbox.exec("cat one two; echo $THREE", cwd="/opt", timeout_sec=100)
    assert found.stdout == b"1\n2\n3\n"
    async with lease.open(SandboxSpec(image="host"), rollout_id="r", lifetime_sec=600) as sandbox:
        assert not (await sandbox.exec("cat /opt/one", timeout_sec=100)).ok
    await lease.aclose()
