"""The queue of faults, and how they look over HTTP."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from agentrl.testing.faults import Fault, Faults
from agentrl.testing.faulty import faulty


def test_a_fault_is_taken_once_by_whom_it_is_meant_for():
    faults = Faults()
    faults.add("reset", "exec", times=2)
    faults.add("throttled", retry_after_sec=3)
    assert faults.take("read") == Fault("throttled", None, retry_after_sec=3)
    assert faults.take("read") is None
    assert faults.take("exec", "cut") is None
    assert not faults.spent and [fault.kind for fault in faults] == ["reset", "reset"]
    assert faults.take("exec", "cut", "reset") == faults.take("exec") == Fault("reset", "exec")
    assert faults.spent and [fault.kind for fault in faults.happened] == ["throttled", "reset", "reset"]
    faults.add("hang")
    faults.clear()
    assert faults.spent


def test_words_that_are_no_faults():
    faults = Faults()
    for kind, primitive in (("explode", "exec"), ("reset", "dance")):
        with pytest.raises(ValueError, match="no such fault"):
            faults.add(kind, primitive)


class Words:
    def error(self, status, message):
        return web.json_response({"message": message}, status=status)

    def quota(self, message):
        return web.json_response({"message": f"no more: {message}"}, status=400)


@pytest.fixture
async def served():
    """Faults, what was done, and a server's address."""
    faults, done = Faults(), []

    async def act(request):
        done.append(await request.text())
        return web.Response(text="done")

    app = web.Application(middlewares=[faulty(faults, Words(), primitive=lambda _: "create", streamed={"exec"})])
    app.router.add_post("/", act)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield faults, done, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def post(url):
    async with aiohttp.ClientSession() as http, http.post(url, data="x") as answer:
        return answer.status, await answer.text(), answer.headers


@pytest.mark.parametrize(
    ("kind", "options", "status", "words"),
    [
        ("throttled", {"retry_after_sec": 2}, 429, "injected"),
        ("error", {"status": 502, "message": "so"}, 502, '"so"'),
        ("html", {"status": 500}, 500, "<html>"),
        ("unauthorized", {}, 401, "injected"),
        ("quota", {}, 400, "no more"),
        ("duplicate", {}, 409, "injected"),
    ],
)
async def test_refusals_do_nothing(served, kind, options, status, words):
    faults, done, url = served
    faults.add(kind, "create", **options)
    answer = await post(url)
    assert answer[0] == status and words in answer[1] and not done
    assert answer[2].get("Retry-After") == ("2" if kind == "throttled" else None)
    assert (await post(url))[:2] == (200, "done")


@pytest.mark.parametrize(("kind", "what_is_done"), [("dropped", []), ("reset", ["x"])])
async def test_cut_connections_before_and_after(served, kind, what_is_done):
    faults, done, url = served
    faults.add(kind)
    with pytest.raises(aiohttp.ClientConnectionError):
        await post(url)
    assert done == what_is_done


async def test_no_answer_and_a_late_one(served):
    faults, done, url = served
    faults.add("hang")
    waiting = asyncio.create_task(post(url))
    while not done:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    faults.add("slow", delay_sec=0.05)
    assert (await post(url))[:2] == (200, "done")
