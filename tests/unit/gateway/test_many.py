"""Many sessions and many gateways: ports, orphans, memory, routing."""

from __future__ import annotations

import gc
import weakref

import pytest
from reserved import reserved_port

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def ports():
    """Two ports that the kernel gives to nobody who does not name them."""
    with reserved_port() as one, reserved_port() as other:
        yield one, other


async def test_gateways_share_a_range_of_ports_and_a_sessions_url_finds_its_own(make_rig, ports):
    one, two = await make_rig("one", port=ports), await make_rig("two", port=ports)
    assert (one.gateway.port, two.gateway.port) == ports
    for rig, text in ((one, "one"), (two, "two")):
        assert (await rig.post(rig.open(), BODY))[1]["choices"][0]["message"]["content"] == text
    with pytest.raises(OSError):
        await make_rig("three", port=ports)


async def test_the_engine_hears_which_session_a_request_belongs_to(make_rig):
    rig = await make_rig("hello")
    first, second = rig.open(), rig.open()
    for session in (first, second, first):
        await rig.post(session, BODY)
    keys = [call.headers["X-SMG-Routing-Key"] for call in rig.engine.calls]
    assert keys == [first.id, second.id, first.id]
    assert first.token not in keys


async def test_a_session_that_nobody_uses_is_closed_and_one_in_use_is_not(make_rig, caplog):
    rig = await make_rig("hello")
    orphan, used = rig.open("orphan"), rig.open("used")
    for session in (orphan, used):
        await rig.post(session, BODY)
    orphan.used_at -= 10_000
    used.used_at -= 4_000
    await rig.gateway.close_idle(5_000)
    assert (orphan.closed, used.closed) == (True, False)
    assert "rollout orphan" in caplog.text
    # What it recorded is still there for whoever asks.
    assert len((await rig.gateway.close_session(orphan)).turns) == 1
    assert (await rig.post(used, BODY))[0] == 200
    await rig.gateway.close_idle(3_000)
    assert not used.closed


async def test_a_closed_session_leaves_no_memory_behind(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    await rig.post(session, BODY)
    forest = weakref.ref(session.forest)
    trajectory = await rig.gateway.close_session(session)
    del session
    gc.collect()
    assert len(trajectory.turns) == 1
    assert forest() is None
