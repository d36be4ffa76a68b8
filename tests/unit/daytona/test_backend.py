"""The backend through the real SDK against the loopback provider: what is asked for, what is left, what is said."""

import asyncio
import gc
import logging
import threading
import time
from unittest.mock import Mock

import aiohttp
import pytest
from daytona import AsyncDaytona
from provider import until

from agentrl.api import (
    ImageUnavailable,
    Resources,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxSpec,
    SandboxThrottled,
    SandboxTransient,
)
from agentrl.testing.loopback_daytona import LoopbackDaytona
from agentrl_daytona.backend import DaytonaBackend
from agentrl_daytona.machines import HAS_TTL
from agentrl_daytona.settings import DaytonaSettings

LABELS = {"agentrl-run": "r1", "agentrl-rollout": "a"}
HANGS = 1.5


async def make(backend, spec=None, lifetime_sec=600.0, **labels):
    return await backend.create(spec or SandboxSpec(), labels={**LABELS, **labels}, lifetime_sec=lifetime_sec)


async def settled(server):
    """Deletion is answered before it is done."""
    await until(lambda: not server.machines)


# ----------------------------------------------------------------------------------------------------- what is made


async def test_a_machine_is_made_as_asked_for(server, backend):
    spec = SandboxSpec(image="debian:12", resources=Resources(1.5, 1500, 2000), env={"OURS": "1"})
    sandbox = await make(backend, spec, lifetime_sec=601)
    machine = server.machines[sandbox.id]
    assert machine.labels.items() >= LABELS.items()
    assert (machine.origin.cpu, machine.origin.memory, machine.origin.disk) == (2, 2, 2)
    assert (machine.user, machine.env, machine.network_block_all) == ("root", {"OURS": "1"}, True)
    assert (machine.auto_delete, machine.auto_stop) == (0, 11)
    assert machine.ttl == (11 if HAS_TTL else 0)


async def test_auto_stop_is_a_setting_and_keep_alive_is_frequent_enough(server, backend_for):
    backend = backend_for(auto_stop_min=5)
    sandbox = await make(backend, lifetime_sec=3600)
    assert server.machines[sandbox.id].auto_stop == 5
    assert backend.capabilities.keep_alive_sec <= 5 * 60 / 2


async def test_keep_alive_counts_as_activity(server, backend):
    sandbox = await make(backend)
    server.machines[sandbox.id].active_at = before = time.time() - 100
    await sandbox.keep_alive()
    assert server.machines[sandbox.id].active_at > before + 50
    assert server.requests.count("POST /api/sandbox/{name}/last-activity") == 1


async def test_a_machine_that_nobody_refreshes_is_deleted(server, backend_for):
    sandbox = await make(backend_for(auto_stop_min=1), lifetime_sec=3600 * 24)
    server.minute_sec = 0.01
    await settled(server)
    with pytest.raises(SandboxGone):
        await sandbox.exec("true", timeout_sec=60)
    await sandbox.close()


@pytest.mark.parametrize(
    ("spec", "public_host", "allowed"),
    [
        (SandboxSpec(), "train.example", (True, None, None)),
        (SandboxSpec(network=True), "", (False, None, None)),
        (SandboxSpec(reach=(80,)), "train.example", (False, None, "train.example")),
        (SandboxSpec(reach=(80,)), "192.0.2.7", (False, "192.0.2.7/32", None)),
        (SandboxSpec(reach=(80,)), "", (True, None, None)),
    ],
)
async def test_the_network_is_open_as_far_as_asked_for(server, backend_for, spec, public_host, allowed):
    sandbox = await make(backend_for(public_host=public_host), spec)
    order = server.orders[sandbox.id]
    lists = tuple(order.get(name) for name in ("networkAllowList", "domainAllowList"))
    assert (bool(order.get("networkBlockAll")), *lists) == allowed
    if public_host:
        assert sandbox.host_url(80) == f"http://{public_host}:80"
    else:
        with pytest.raises(SandboxRefused, match="AGENTRL_REACH=relay"):
            sandbox.host_url(80)


async def test_resources_need_an_image(server, backend, backend_for):
    for image in (None, "snapshot:theirs"):
        with pytest.raises(SandboxRefused, match="resources of its own"):
            await make(backend, SandboxSpec(image=image, resources=Resources(cpus=2)))
    await make(backend_for(image="debian:12"), SandboxSpec(resources=Resources(cpus=2)))
    assert [machine.origin.cpu for machine in server.machines.values()] == [2]


async def test_what_cannot_be_found(server, backend):
    with pytest.raises(ImageUnavailable):
        await make(backend, SandboxSpec(image="snapshot:nobody's"))
    server.faults.add("failed", "create")
    with pytest.raises(ImageUnavailable, match="manifest unknown"):
        await make(backend, SandboxSpec(image="nobody/no:1"))
    await settled(server)


async def test_a_port_inside_is_reached_by_http(server, backend):
    sandbox = await make(backend)
    serve = "cd /tmp && echo hello > f && (python3 -m http.server 8123 >/dev/null 2>&1 &)"
    wait = "until (: < /dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.05; done"
    assert (await sandbox.exec(f"{serve}; {wait}", timeout_sec=60)).ok
    url, headers = await sandbox.port_url(8123)
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/f", headers=headers) as answer:
            assert (answer.status, await answer.text()) == (200, "hello\n")
        async with http.get(f"{url}/f") as answer:
            assert answer.status == 401, "without the token"


# --------------------------------------------------------------------------------------------------- what is listed


async def test_list_goes_through_all_pages_and_filters(server, backend):
    ids = {(await make(backend, mine="1")).id for _ in range(5)}
    await make(backend, mine="2")
    began = time.time() - 300
    listed = await backend.list({"mine": "1"})
    assert {info.id for info in listed} == ids and all(began < info.created_at < time.time() + 5 for info in listed)
    assert server.requests.count("GET /api/sandbox") == 2, "three a page"


async def test_stopped_machines_are_listed_since_they_hold_quota(server, backend):
    sandbox = await make(backend)
    server.machines[sandbox.id].auto_delete = -1
    await server.stop(sandbox.id)
    assert [info.id for info in await backend.list({})] == [sandbox.id]
    with pytest.raises(SandboxGone, match="stopped"):
        await backend.attach(sandbox.id)
    with pytest.raises(SandboxGone):
        await sandbox.exec("true", timeout_sec=60)
    await backend.delete(sandbox.id)
    await settled(server)


async def test_ghosts_can_be_deleted(server, backend):
    sandbox = await make(backend)
    await sandbox.close()
    await settled(server)
    server.faults.add("ghost", "list")
    await asyncio.gather(*(backend.delete(info.id) for info in await backend.list({})))
    assert server.faults.spent


async def test_attach_reaches_a_machine_and_not_a_dead_one(server, backend, backend_for):
    sandbox = await make(backend)
    other = await backend_for().attach(sandbox.id)
    assert (await other.exec("echo there", timeout_sec=60)).stdout == b"there\n"
    await sandbox.close()
    await settled(server)
    with pytest.raises(SandboxGone):
        await backend.attach(sandbox.id)


# ------------------------------------------------------------------------------------------------ what goes half-way


@pytest.mark.parametrize("kind", ["reset", "hang", "stuck"])
async def test_a_creation_whose_answer_is_lost_is_looked_up_and_deleted(server, backend_for, kind):
    server.faults.add(kind, "create")
    with pytest.raises(SandboxTransient):
        await make(backend_for(boot_timeout_sec=HANGS), SandboxSpec(image="debian:12"))
    await settled(server)
    assert server.faults.spent


async def test_it_is_found_even_if_looking_for_it_fails_at_first(server, backend, monkeypatch):
    monkeypatch.setattr("agentrl_daytona.machines.LOOKS", (0.0, 0.05, 0.05))
    server.faults.add("reset", "create")
    server.faults.add("error", "get", status=503)
    with pytest.raises(SandboxTransient):
        await make(backend)
    await settled(server)
    assert server.faults.spent


async def test_a_cancelled_creation_leaves_nothing(server, backend_for):
    server.faults.add("stuck", "create")
    creation = asyncio.create_task(make(backend_for(), SandboxSpec(image="debian:12")))
    await until(lambda: server.machines)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    await settled(server)


@pytest.mark.parametrize(
    ("kind", "status", "error", "words"),
    [
        ("throttled", 429, SandboxThrottled, "injected"),
        ("quota", 400, SandboxThrottled, "Total disk limit exceeded"),
        ("error", 500, SandboxTransient, "injected"),
        ("html", 502, SandboxTransient, "502"),
        ("unauthorized", 401, SandboxRefused, "DAYTONA_API_KEY"),
        ("duplicate", 409, SandboxTransient, "injected"),
        ("error", 403, SandboxRefused, "may not"),
    ],
)
async def test_what_creation_raises(server, backend, monkeypatch, kind, status, error, words):
    monkeypatch.setattr("agentrl_daytona.machines.LOOKS", (0.0,))
    server.faults.add(kind, "create", status=status)
    with pytest.raises(error, match=words) as caught:
        await make(backend)
    assert type(caught.value) is error
    await settled(server)


async def test_the_limit_of_the_account_is_throttling():
    async with LoopbackDaytona(machine_limit=1) as server:
        backend = DaytonaBackend(DaytonaSettings(api_key=server.api_key, api_url=server.url))
        first = await make(backend)
        with pytest.raises(SandboxThrottled) as caught:
            await make(backend)
        assert caught.value.retry_after_sec and caught.value.retry_after_sec >= 30
        await first.close()
        await backend.aclose()


async def test_the_service_may_be_down():
    backend = DaytonaBackend(DaytonaSettings(api_key="dtn_x", api_url="http://127.0.0.1:9/api"))
    with pytest.raises(SandboxTransient, match="DAYTONA_API_URL"):
        await make(backend)
    assert "127.0.0.1:9" in await backend.probe()
    await backend.aclose()


async def test_closing_the_backend_ends_commands_under_way_and_leaves_no_client_open(server):
    backend = DaytonaBackend(DaytonaSettings(api_key=server.api_key, api_url=server.url))
    sandbox = await make(backend)
    under_way = asyncio.create_task(sandbox.exec("touch /tmp/on; sleep 600", timeout_sec=900))
    while not (await sandbox.exec("ls /tmp/on", timeout_sec=60)).ok:
        pass
    await backend.aclose()
    with pytest.raises(SandboxError):
        await under_way
    assert "agentrl-daytona" not in {thread.name for thread in threading.enumerate()}
    gc.collect()  # an open client would be a warning, which is an error


async def test_a_service_that_comes_back_finds_its_machines(server, backend):
    sandbox = await make(backend)
    async with server.down():
        with pytest.raises(SandboxTransient):
            await sandbox.keep_alive()
    assert (await sandbox.exec("echo here", timeout_sec=60)).stdout == b"here\n"


async def test_closing_is_tried_once_and_missing_is_success(server, backend):
    sandbox = await make(backend)
    server.faults.add("error", "delete", status=500)
    with pytest.raises(SandboxTransient):
        await sandbox.close()
    await sandbox.close()
    await sandbox.close()
    await settled(server)
    other = await make(backend)
    server.faults.add("error", "delete", status=404)
    await other.close()
    assert server.faults.spent


# ------------------------------------------------------------------------------------------------- whose account


async def test_probe_says_what_to_set(server, backend):
    assert await backend.probe() is None
    assert "DAYTONA_API_KEY" in await DaytonaBackend(DaytonaSettings(api_url=server.url)).probe()
    wrong = DaytonaBackend(DaytonaSettings(api_url=server.url, api_key="dtn_wrong"))
    assert "DAYTONA_API_KEY" in await wrong.probe() and server.url in await wrong.probe()
    await wrong.aclose()
    token = DaytonaBackend(DaytonaSettings(api_url=server.url, jwt_token="x"))
    assert "DAYTONA_ORGANIZATION_ID" in await token.probe()


async def test_a_token_speaks_for_an_organisation(server):
    settings = DaytonaSettings(api_url=server.url, jwt_token=server.api_key, organization_id="o1", target="eu")
    backend = DaytonaBackend(settings)
    sandbox = await make(backend)
    assert server.orders[sandbox.id]["target"] == "eu"
    await sandbox.close()
    await backend.aclose()


async def test_dotenv_files_have_no_say(server, backend_for, tmp_path, monkeypatch):
    for name in (".env", ".env.local"):
        text = (
            "DAYTONA_API_URL=http://127.0.0.1:9\nDAYTONA_TARGET=theirs\nDAYTONA_OTEL_ENABLED=true\nDAYTONA_API_KEY=x\n"
        )
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    sandbox = await make(backend_for())
    assert server.orders[sandbox.id].get("target") is None


async def test_the_key_is_nowhere(server, backend, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox = await make(backend)
    shown = await sandbox.exec("env; cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n'", timeout_sec=60)
    server.faults.add("unauthorized", "list")
    with pytest.raises(SandboxError) as caught:
        await backend.list({})
    seen = [shown.stdout.decode(errors="replace"), caplog.text, str(caught.value), repr(backend.capabilities)]
    assert not any(server.api_key in text for text in seen)


async def test_accounts_are_told_apart_without_their_keys():
    accounts = {
        DaytonaBackend(DaytonaSettings(api_key=key, api_url=url)).capabilities.account
        for key in ("a", "b") for url in ("http://x", "http://y")
    }  # fmt: skip
    assert len(accounts) == 4 and not any(word == "a" for account in accounts for word in account.split())


# ------------------------------------------------------------------------------------------------------------- loops


async def test_calls_from_several_event_loops(server, backend, monkeypatch):
    clients = Mock(side_effect=AsyncDaytona)
    monkeypatch.setattr("agentrl_daytona.client.AsyncDaytona", clients)
    sandbox = await make(backend)

    def elsewhere(number):
        async def work():
            same = await sandbox.exec(f"echo {number}", timeout_sec=60)
            await sandbox.write_file(f"/tmp/{number}", b"x" * 200_000)
            other = await make(backend)
            await other.close()
            return same.stdout

        return asyncio.run(work())

    outcomes = await asyncio.gather(*(asyncio.to_thread(elsewhere, number) for number in range(3)))
    assert outcomes == [b"0\n", b"1\n", b"2\n"]
    assert len(await sandbox.read_file("/tmp/2")) == 200_000
    assert clients.call_count == 1


async def test_a_machine_without_time_to_live_is_ended_by_us(server, backend, monkeypatch):
    monkeypatch.setattr("agentrl_daytona.backend.HAS_TTL", False)
    sandbox = await make(backend, lifetime_sec=0.2)
    await settled(server)
    await sandbox.close()
