"""What the driver makes of ranks and engines that fail, without real ones."""

import asyncio
import json

import pytest

from agentrl.api import EngineError, TrainerError, WeightGroup
from agentrl_megatron.publish import join_engine, publish
from agentrl_megatron.ranks import Ranks
from agentrl_megatron.settings import MegatronSettings
from agentrl_megatron.wire import Message

READY = Message(
    "ok", {"dp_rank": 0, "branches": True, "backend": "gloo", "weights": [["w", "float32", [2, 3]]], "port": 1}
)


class ScriptedLink:
    """Answers every command from ``replies`` (``ready`` if there is none); an exception is raised, None never answers."""

    def __init__(self, **replies):
        self.replies, self.op, self.stopped, self.given_up = replies, "", False, False

    async def send(self, message):
        self.op = message.op

    async def receive(self):
        reply = self.replies.get(self.op, READY)
        if reply is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up = True
                raise
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def stop(self):
        self.stopped = True

    def log_tail(self):
        return "the last line"


async def start(model_dir, make_spec, links):
    waiting = iter(links)

    async def launch(rank, world, settings, log_dir):
        return next(waiting)

    (model_dir / "config.json").write_text(json.dumps({"num_hidden_layers": 2}))
    settings = MegatronSettings(dp=len(links))
    return await Ranks.start(make_spec(model_dir), settings, None, launch=launch)


async def test_a_rank_that_died_is_named_with_its_log_and_the_others_are_given_up(tmp_path, make_spec):
    links = [ScriptedLink(save=None), ScriptedLink(save=EOFError())]
    ranks = await start(tmp_path, make_spec, links)
    with pytest.raises(TrainerError, match=r"rank 1 died during 'save':\nthe last line"):
        await ranks.all("save")
    assert links[0].given_up


async def test_a_rank_that_failed_is_named_with_its_error(tmp_path, make_spec):
    ranks = await start(tmp_path, make_spec, [ScriptedLink(save=Message("error", {"error": "OSError: disk full"}))])
    with pytest.raises(TrainerError, match="rank 0 failed in 'save': OSError: disk full"):
        await ranks.all("save")


async def test_ranks_that_do_not_all_start_are_all_stopped(tmp_path, make_spec):
    links = [ScriptedLink(), ScriptedLink(start=ConnectionResetError())]
    with pytest.raises(TrainerError, match="rank 1 died during 'start'"):
        await start(tmp_path, make_spec, links)
    assert all(link.stopped for link in links)


class FailingEngine:
    """Fails in one call (``fails``); serves ``version`` whatever it is sent."""

    def __init__(self, fails="", version="7"):
        self.fails, self.version, self.log = fails, version, []

    async def pause(self):
        self._called("pause")

    async def resume(self):
        self._called("resume")

    async def join_weight_group(self, group):
        self._called("join")

    async def update_weights(self, tensors, group, version):
        self._called("update")

    async def weight_version(self):
        return self.version

    def _called(self, name):
        self.log.append(name)
        if name == self.fails:
            raise EngineError("out of memory")


GROUP = WeightGroup("g", "127.0.0.1", 1, 2, "gloo")


async def test_weights_that_the_engine_refuses_end_the_run_with_the_engine_paused(tmp_path, make_spec):
    link, engine = ScriptedLink(broadcast=None), FailingEngine(fails="update")
    ranks = await start(tmp_path, make_spec, [link])
    with pytest.raises(TrainerError, match="weights of version 7 did not reach the engine: out of memory"):
        await publish(ranks, engine, GROUP, "7")
    assert engine.log == ["pause", "update"]
    assert link.given_up


async def test_a_rank_that_dies_while_it_sends_ends_the_run(tmp_path, make_spec):
    ranks = await start(tmp_path, make_spec, [ScriptedLink(broadcast=EOFError())])
    engine = FailingEngine()
    with pytest.raises(TrainerError, match="rank 0 died during 'broadcast'"):
        await publish(ranks, engine, GROUP, "7")
    assert "resume" not in engine.log


async def test_an_engine_that_goes_on_with_old_weights_is_noticed(tmp_path, make_spec):
    ranks = await start(tmp_path, make_spec, [ScriptedLink()])
    with pytest.raises(TrainerError, match="still serves version '6'"):
        await publish(ranks, FailingEngine(version="6"), GROUP, "7")


async def test_an_engine_that_does_not_join_ends_the_run(tmp_path, make_spec):
    link = ScriptedLink(join=None)
    ranks = await start(tmp_path, make_spec, [link])
    with pytest.raises(TrainerError, match="did not join the weight group: out of memory"):
        await join_engine(ranks, FailingEngine(fails="join"), MegatronSettings())
    assert link.given_up
