"""The backend through the real SDK: what it asks E2B for, and that nothing is left behind."""

import asyncio
import logging
import threading
import time

import pytest
from provider import until

from agentrl.api import (
    ImageUnavailable,
    Layer,
    Resources,
    SandboxGone,
    SandboxRefused,
    SandboxSpec,
    SandboxThrottled,
    SandboxTransient,
)
from agentrl_e2b.backend import DEADLINE_LABEL, TOKEN_LABEL, E2BBackend
from agentrl_e2b.settings import E2BSettings
from agentrl_e2b.templates import Worker

LABELS = {"agentrl-run": "r1", "agentrl-rollout": "a b/ü"}


async def make(backend, spec=None, *, lifetime_sec=300, labels=LABELS):
    return await backend.create(spec or SandboxSpec(), labels=labels, lifetime_sec=lifetime_sec)


# ---------------------------------------------------------------------------------------------------- creation


async def test_a_machine_carries_its_labels_its_end_and_its_environment(server, backend):
    began = time.time()
    sandbox = await make(backend, SandboxSpec(env={"OURS": "1 2"}), lifetime_sec=120)
    machine = server.machines[sandbox.id]
    assert LABELS.items() <= machine.metadata.items()
    for end in (float(machine.metadata[DEADLINE_LABEL]), machine.end_at.timestamp()):
        assert began + 119 <= end <= time.time() + 121
    assert machine.env == {"OURS": "1 2"}
    assert machine.traffic_token, "ports inside are open to everyone"


async def test_no_longer_booked_than_allowed_and_renewed_up_to_the_deadline(server, backend_for):
    backend = backend_for(longest_life_sec=60)
    assert backend.capabilities.keep_alive_sec == 20
    sandbox = await make(backend, lifetime_sec=3600)
    machine = server.machines[sandbox.id]
    before = machine.end_at
    assert before.timestamp() <= time.time() + 60
    await sandbox.keep_alive()
    assert machine.end_at > before
    short = await make(backend, lifetime_sec=30)
    asked = time.time()
    await short.keep_alive()
    machine, took_sec = server.machines[short.id], time.time() - asked
    beyond_sec = machine.end_at.timestamp() - float(machine.metadata[DEADLINE_LABEL])
    assert beyond_sec <= 2 + took_sec, "kept beyond its deadline"


async def test_list_goes_through_all_pages_and_filters(server, backend):
    made = {(await make(backend, labels={**LABELS, "n": str(n)})).id for n in range(server.page_size + 2)}
    other = await make(backend, labels={"agentrl-run": "r2"})
    listed = await backend.list({"agentrl-run": "r1"})
    assert {info.id for info in listed} == made and other.id not in made
    assert all(LABELS.items() <= info.labels.items() and info.created_at > 1e9 for info in listed)
    server.faults.add("ghost", "list")
    for info in await backend.list({"agentrl-run": "r1"}):
        await backend.delete(info.id)  # one of them does not exist
    assert set(server.machines) == {other.id}
    assert server.faults.spent


async def test_attach_reaches_a_machine_and_not_a_dead_one(server, backend):
    sandbox = await make(backend, SandboxSpec(env={"PATH": "/mine:/usr/bin:/bin"}))
    end_at = server.machines[sandbox.id].end_at
    again = await backend.attach(sandbox.id)
    assert again.id == sandbox.id and server.machines[sandbox.id].end_at == end_at
    assert (await again.exec("echo $PATH", timeout_sec=60)).stdout == b"/mine:/usr/bin:/bin\n"
    await again.keep_alive()
    assert (server.machines[sandbox.id].end_at - end_at).total_seconds() < 60, "it lives longer than its maker wanted"
    await sandbox.close()
    await sandbox.close()
    with pytest.raises(SandboxGone):
        await backend.attach(sandbox.id)


@pytest.mark.parametrize(("kind", "create_sec"), [("reset", 60), ("hang", 1)])
async def test_a_creation_whose_answer_is_lost_is_looked_up_and_deleted(server, backend_for, kind, create_sec):
    backend = backend_for(create_sec=create_sec)
    server.faults.add(kind, "create")
    with pytest.raises(SandboxTransient):
        await make(backend)
    await until(lambda: len(server.created) == 1 and not server.machines)
    assert server.faults.spent
    await backend.aclose()


async def test_it_is_found_even_if_looking_for_it_fails_at_first(server, backend_for):
    backend = backend_for()
    server.faults.add("reset", "create")
    server.faults.add("error", "list", status=500)
    server.faults.add("error", "delete", status=500)
    with pytest.raises(SandboxTransient):
        await make(backend)
    await backend.aclose()
    assert len(server.created) == 1 and not server.machines and server.faults.spent


async def test_a_cancelled_creation_leaves_nothing(server, backend_for):
    backend = backend_for()
    server.faults.add("slow", "create", delay_sec=0.5)
    creation = asyncio.create_task(make(backend))
    await until(lambda: server.requests)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    await backend.aclose()
    assert len(server.created) == 1 and not server.machines


async def test_what_does_not_answer_after_its_creation_is_deleted(server, backend, monkeypatch):
    monkeypatch.setattr("agentrl_e2b.backend.BOOT_PAUSE_SEC", 0.01)
    server.faults.add("dropped", "health", times=3)
    assert await make(backend), "a first connection that dies is nothing special"
    server.faults.add("error", "health", times=50, status=502)
    with pytest.raises(SandboxTransient, match="does not answer"):
        await make(backend)
    await backend.aclose()
    assert len(server.created) == 2 and len(server.machines) == 1


@pytest.mark.parametrize(
    ("kind", "status", "error", "words"),
    [
        ("throttled", 429, SandboxThrottled, "slow down"),
        ("quota", 429, SandboxThrottled, "maximum number of concurrent"),
        ("error", 503, SandboxTransient, "injected"),
        ("error", 500, SandboxTransient, "injected"),
        ("html", 502, SandboxTransient, "creating a machine"),
        ("dropped", 0, SandboxTransient, "creating a machine"),
        ("unauthorized", 401, SandboxRefused, "E2B_API_KEY"),
        ("error", 400, SandboxRefused, "injected"),
    ],
)
async def test_what_creation_raises(server, backend, kind, status, error, words):
    server.faults.add(kind, "create", status=status)
    with pytest.raises(error, match=words) as caught:
        await make(backend)
    assert type(caught.value) is error
    assert server.requests.count("POST /v2/sandboxes") + server.requests.count("POST /sandboxes") == 1, (
        "the SDK retried"
    )
    assert not server.created
    await backend.aclose()


async def test_a_template_that_does_not_exist(server, backend_for):
    with pytest.raises(ImageUnavailable, match="nowhere"):
        await make(backend_for(template="nowhere"))


async def test_the_service_may_be_down(server, backend):
    sandbox = await make(backend)
    async with server.down():
        with pytest.raises(SandboxTransient):
            await make(backend)
        assert "does not answer" in await backend.probe()
    await sandbox.close()
    assert await backend.probe() is None


async def test_the_sdk_is_told_all_that_this_version_understands(backend_for):
    from e2b.connection_config import ApiParams

    options = backend_for(http_version="1.1", domain="cloud.example")._sdk.options()
    wanted = {"retries": 0, "http_version": "1.1", "domain": "cloud.example", "debug": False}
    assert wanted.items() - options.items() == {(k, v) for k, v in wanted.items() if k not in ApiParams.__annotations__}


async def test_without_a_key_nothing_is_asked(server):
    backend = E2BBackend(E2BSettings(api_url=server.url, api_key=""))
    assert "E2B_API_KEY" in await backend.probe()
    with pytest.raises(SandboxRefused, match="E2B_API_KEY_FILE"):
        await make(backend)
    assert not server.requests


async def test_a_wrong_key_is_told(server):
    backend = E2BBackend(E2BSettings(api_url=server.url, api_key="wrong-of-my-own-gateway"))
    assert "E2B_API_KEY" in await backend.probe()


async def test_the_key_is_nowhere(server, backend, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox = await make(backend)
    server.faults.add("unauthorized", "create")
    with pytest.raises(SandboxRefused) as caught:
        await make(backend)
    said = [caplog.text, str(caught.value), repr(caught.value.__cause__), repr(backend.capabilities)]
    said += [(await sandbox.exec("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ", timeout_sec=60)).stdout.decode()]
    assert not [text for text in said if server.api_key in text]


async def test_accounts_are_told_apart_without_their_keys():
    accounts = {
        E2BBackend(E2BSettings(api_key=key, api_url=url)).capabilities.account
        for key in ("e2b_1", "e2b_2")
        for url in ("http://127.0.0.1:1", "http://127.0.0.1:2")
    }
    assert len(accounts) == 4 and not any("e2b_1" in account for account in accounts)


async def test_a_cold_burst_goes_one_first(server, backend, monkeypatch):
    boot, there = server.host.start, []

    async def booted(**options):
        there.append(len(server.created))
        return await boot(**options)

    monkeypatch.setattr(server.host, "start", booted)
    server.faults.add("slow", "create", delay_sec=0.3)
    await asyncio.gather(*(make(backend) for _ in range(6)))
    assert there.count(0) == 1, "others left before the first connection stood"
    assert len(server.machines) == 6


# ---------------------------------------------------------------------------------------- images and templates


def builds(server):
    return [template.names[0] for template in server.builder.templates if template.id != "base"]


async def test_an_image_becomes_a_template_once(server, backend):
    spec = SandboxSpec(image="debian:12", resources=Resources(cpus=1.5, memory_mb=1001))
    first, second = await asyncio.gather(make(backend, spec), make(backend, spec))
    assert len(builds(server)) == 1 and server.requests.count("POST /v3/templates") == 1
    template = server.machines[first.id].template
    assert (template.cpus, template.memory_mb) == (2, 1002)
    assert server.machines[second.id].template is template
    await make(backend, SandboxSpec(image="debian:12"))
    assert len(builds(server)) == 2, "other limits are another template"


async def test_a_template_of_the_account_is_taken_as_it_is(server, backend):
    await backend.create(SandboxSpec(image="base"), labels=LABELS, lifetime_sec=60)
    assert builds(server) == []


async def test_another_process_finds_what_was_built(server, backend_for):
    layer = Layer("one", ("echo made > /opt/made",), {"/opt/one/tool": b"#!/bin/sh\n"})
    image = await backend_for().prepare("debian:12", Resources(), [layer])
    assert await backend_for().prepare("debian:12", Resources(), [layer]) == image
    assert server.requests.count("POST /v3/templates") == 1
    sandbox = await make(backend_for(), SandboxSpec(image=image))
    result = await sandbox.exec("cat /opt/made; stat -c '%a %U' /opt/one/tool", timeout_sec=60)
    assert result.stdout == b"made\n755 root\n"


async def test_a_half_built_template_is_waited_for_and_a_broken_one_built_again(server, backend, monkeypatch):
    monkeypatch.setattr("agentrl_e2b.templates._POLL_SEC", 0.02)
    layer = Layer("one", ("true",))
    server.faults.add("failed", "prepare", message="disk full")
    with pytest.raises(SandboxRefused, match="disk full"):
        await backend.prepare(None, Resources(), [layer])
    image = await backend.prepare(None, Resources(), [layer])
    build = list(server.builder.builds.values())[-1]
    build.status = "building"
    server.builder.builds = {build.id: build}
    other = E2BBackend(E2BSettings(api_key=server.api_key, api_url=server.url))
    waiting = asyncio.create_task(other.prepare(None, Resources(), [layer]))
    polled = len(server.requests)
    await until(lambda: len(server.requests) > polled + 4)
    assert not waiting.done()
    build.status = "ready"
    assert await waiting == image
    assert server.requests.count("POST /v3/templates") == 2, "built again beside the other builder"


async def test_an_image_that_no_registry_has(server, backend):
    server.builder.missing.add("debian:nope")
    with pytest.raises(ImageUnavailable, match="debian:nope"):
        await make(backend, SandboxSpec(image="debian:nope"))


async def test_a_build_that_never_ends(server, backend_for):
    backend = backend_for(build_sec=1.0)
    server.faults.add("stuck", "prepare")
    with pytest.raises(SandboxTransient, match="not built within 1 s"):
        await backend.prepare(None, Resources(), [Layer("one", ("true",))])


async def test_a_build_ends_with_its_backend_also_while_files_are_fetched(server, backend_for, monkeypatch, tmp_path):
    fetching, stopped, stop = threading.Event(), threading.Event(), Worker.stop

    def fetch():
        fetching.set()
        stopped.wait()
        return tmp_path / "file"

    def stop_and_tell(worker):
        stop(worker)
        stopped.set()

    monkeypatch.setattr(Worker, "stop", stop_and_tell)
    (tmp_path / "file").write_bytes(b"x")
    backend = backend_for()
    layers = [Layer("fetched", (), fetched={"/opt/file": fetch})]
    building = asyncio.create_task(backend.prepare(None, Resources(), layers))
    await asyncio.to_thread(fetching.wait)
    await backend.aclose()
    with pytest.raises(SandboxTransient, match="nobody waits"):
        await building
    assert not builds(server)


async def test_a_failing_layer_says_what_failed(server, backend):
    with pytest.raises(SandboxRefused, match="exit status 7"):
        await backend.prepare(None, Resources(), [Layer("bad", ("echo oops; exit 7",))])


async def test_gateways_that_run_images_get_them_as_metadata(server, backend_for):
    backend = backend_for(image_metadata_key="x-image")
    sandbox = await make(backend, SandboxSpec(image="debian:12", resources=Resources(cpus=2)))
    assert server.machines[sandbox.id].metadata["x-image"] == "debian:12"
    assert builds(server) == [] and backend.capabilities.resources == frozenset()
    with pytest.raises(SandboxRefused, match="SWE_SANDBOX_IMAGE_METADATA_KEY"):
        await backend.prepare("debian:12", Resources(), [Layer("one", ("true",))])
    assert await backend.prepare("debian:12", Resources(), []) == "debian:12"


# ------------------------------------------------------------------------------------------------------ network


@pytest.mark.parametrize(
    ("spec", "public_host", "policy"),
    [
        (SandboxSpec(), "", {"denyOut": ["0.0.0.0/0"]}),
        (SandboxSpec(reach=(80,)), "train.example", {"denyOut": ["0.0.0.0/0"], "allowOut": ["train.example"]}),
        (SandboxSpec(network=True), "train.example", {}),
    ],
)
async def test_the_network_policy_that_is_asked_for(server, backend_for, spec, public_host, policy):
    backend = backend_for(public_host=public_host)
    sandbox = await make(backend, spec)
    assert server.machines[sandbox.id].network == {"allowPublicTraffic": False, **policy}
    assert sandbox.host_url(80) == f"http://{public_host or '127.0.0.1'}:80"


async def test_several_event_loops(server, backend):
    sandbox = await make(backend)

    def elsewhere():
        async def work():
            here = await backend.attach(sandbox.id)
            result = await here.exec("echo there", timeout_sec=60)
            other = await make(backend)
            await other.close()
            return result.stdout

        return asyncio.run(work())

    outcomes = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(3)))
    assert outcomes == [b"there\n"] * 3
    assert set(server.machines) == {sandbox.id}


async def test_creation_tokens_are_new_each_time(server, backend):
    await asyncio.gather(*(make(backend) for _ in range(3)))
    tokens = {machine.metadata[TOKEN_LABEL] for machine in server.machines.values()}
    assert len(tokens) == 3 and len(server.machines) == 3
