"""CONTRIBUTING.md names every hook, and its examples are plugins that load."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from plugin_folder import plugin_folder

from agentrl import hookspecs
from agentrl.api import ContextOverflow, Message, Reply, Text, TurnContext, Usage
from agentrl.plugins import Plugins, load_plugins
from agentrl.registry import KINDS
from agentrl.settings import resolve

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
HOOKS = sorted(name for name in vars(hookspecs) if name.startswith("agentrl_"))


@pytest.fixture(scope="module")
def plugins(tmp_path_factory) -> Plugins:
    """All examples, loaded as plugins."""
    with plugin_folder(tmp_path_factory.mktemp("examples")) as folder:
        modules = [folder.module(f"contributed_{number}", source) for number, source in enumerate(EXAMPLES)]
        yield load_plugins(resolve({"AGENTRL_PLUGINS": ",".join(modules), "AGENTRL_DISABLE_PLUGINS": "agentrl"}))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_an_example(hook):
    assert any(f"def {hook}(" in example for example in EXAMPLES)
    assert f"`{hook}`" in TEXT


def test_every_example_loads(plugins):
    assert [str(broken) for broken in plugins.broken] == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_example_offers_can_be_made(plugins, kind):
    offered = [offer for offer in plugins.registry.offers(kind) if offer.origin == "AGENTRL_PLUGINS"]
    assert offered
    for offer in offered:
        assert offer.summary
        plugins.registry.build(offer)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.variable])
def test_the_variable_that_chooses_a_kind_is_in_its_heading(kind):
    heading = next(
        line for line in TEXT.splitlines() if line.startswith("###") and f"`agentrl_register_{kind}`" in line
    )
    assert KINDS[kind].variable in heading


async def test_the_sandbox_example_works(plugins):
    backend = plugins.registry.build(plugins.registry.get("sandboxes", "folder"))
    sandbox = await backend.create(None, labels={"run": "r"}, lifetime_sec=60)
    await sandbox.write_file("/work/in.txt", b"one\n")
    assert (await sandbox.exec("wc -l < in.txt; exit 7", cwd="/work", timeout_sec=60)).exit_code == 7
    assert await sandbox.read_file("/work/in.txt") == b"one\n"
    assert (await sandbox.exec("cat", stdin=b"x", timeout_sec=60)).stdout == b"x"
    assert (await sandbox.exec("kill -9 $$", timeout_sec=60)).exit_code == 137
    assert [info.id for info in await backend.list({"run": "r"})] == [sandbox.id]
    await backend.delete(sandbox.id)
    assert await backend.list({}) == []


async def test_the_middleware_example_works(plugins):
    taper = plugins.registry.build(plugins.registry.get("middleware", "taper"))
    seen = []

    async def call_next(turn):
        seen.append(turn.max_new_tokens)
        return "reply"

    turn = TurnContext("s", "r", None, "simple", 10, 1000, 10, 0, 0.0)
    assert await taper(turn, call_next) == "reply"
    assert seen == [250]


def test_the_dialect_example_works(plugins):
    dialect = plugins.registry.build(plugins.registry.get("dialects", "simple"))
    assert dialect.read({"prompt": "hi"}).messages == (Message("user", (Text("hi"),)),)
    reply = Reply(Message("assistant", (Text("yes"),)), "stop", Usage(3, 1), "t1")
    assert dialect.reply(reply) == {"text": "yes", "finish": "stop", "tokens": 1}
    assert b'"yes"' in b"".join(dialect.events(reply))
    assert [dialect.error(error)[0] for error in (ContextOverflow(9, 8), ValueError("ours"))] == [400, 500]


def test_the_events_example_works(plugins, caplog):
    with caplog.at_level(logging.INFO):
        plugins.announce("agentrl_rollout_started", rollout_id="i0-g0-r0", task_id="t1", iteration=0)
    assert [record.getMessage() for record in caplog.records] == ["i0-g0-r0 works on t1"]
