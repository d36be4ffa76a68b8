"""What the engine is asked for."""

from __future__ import annotations

from agentrl.api import Resources, SandboxSpec
from agentrl_docker.machine import container_config


def config(resources=None, **options):
    values = {"image": "i", "labels": {}, "lifetime_sec": 10.2, "network": {}, "user": "", **options}
    return container_config(SandboxSpec(resources=resources or Resources()), **values)


def test_swap_is_no_way_around_a_memory_limit():
    limits = config(Resources(memory_mb=64))["HostConfig"]
    assert limits["Memory"] == limits["MemorySwap"] == 64 << 20


def test_without_a_wish_only_processes_are_limited():
    limits = config()["HostConfig"]
    assert limits["PidsLimit"] > 0
    assert "Memory" not in limits and "CpuQuota" not in limits


def test_a_container_removes_itself_and_never_ends_early():
    body = config()
    assert body["HostConfig"]["AutoRemove"] is True
    assert body["Entrypoint"][-1] == "11"


def test_the_images_user_stays_unless_another_is_set():
    assert "User" not in config()
    assert config(user="agent")["User"] == "agent"
