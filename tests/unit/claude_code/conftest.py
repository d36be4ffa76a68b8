"""A gateway, a sandbox that has the real program baked in, and a tokenizer and template like a model's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from claude_rig import WORKDIR, Actor, RecordedMessages, Rig
from cutting_relay import CuttingRelay
from places import backend_at
from reserved import reserved_port
from tiny_model import Speller, tiny_model

from agentrl.api import SandboxBackend
from agentrl.gateway.engine import SGLangEngine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Budgets
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl.tokens import load_codec
from agentrl.types import Resources, SandboxSpec
from agentrl_claude_code.harness import ClaudeCode
from agentrl_claude_code.settings import ClaudeCodeSettings


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer and a ChatML template with tools."""
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def machines() -> Iterator[Path]:
    """The files of all sandboxes here. The baked program is too big to be kept like other files of tests."""
    folder = Path(tempfile.mkdtemp(prefix="agentrl-claude-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place() -> str:
    """Where the sandbox is, unless a test says otherwise."""
    return "local"


@pytest.fixture
async def backend(place: str, machines: Path, request: pytest.FixtureRequest) -> AsyncIterator[SandboxBackend]:
    """Where the sandbox comes from."""
    async with backend_at(place, request, machines) as chosen:
        yield chosen


@pytest.fixture
async def make_rig(model_dir: Path, backend: SandboxBackend) -> AsyncIterator[Callable[..., Any]]:
    """``await make_rig(said, budgets={}, **gateway options)``; ``said`` as for :class:`Actor`, or the replies of the only conversation."""
    speller = Speller(model_dir)
    async with AsyncExitStack() as stack:

        async def make(
            said: Mapping[str, Sequence[str]] | Sequence[str],
            budgets: Mapping[str, Any] | None = None,
            **options: Any,
        ) -> Rig:
            replies = said if isinstance(said, Mapping) else {"": said}
            port = stack.enter_context(reserved_port())  # nobody else's once the engine is gone
            engine = await stack.enter_async_context(ScriptedEngine(Actor(speller, replies), port=port))
            client = SGLangEngine(engine.url, timeout_sec=300)
            stack.push_async_callback(client.aclose)
            values = {"context_tokens": 100_000, "turn_timeout_sec": 120.0, **options}
            dialect = RecordedMessages()
            gateway = Gateway(
                codec=load_codec(model_dir),
                engine=client,
                sampling=SamplingPolicy(max_new_tokens=4096),
                dialects=(dialect,),
                **values,
            )
            await gateway.start()
            stack.push_async_callback(gateway.aclose)
            layers = ClaudeCode(ClaudeCodeSettings()).layers()
            image = await backend.prepare(None, Resources(), layers)
            relay = await stack.enter_async_context(CuttingRelay(gateway.port))
            spec = SandboxSpec(image=image, reach=(relay.port,))
            sandbox = await backend.create(spec, labels={"agentrl-run": "test"}, lifetime_sec=3600)
            stack.push_async_callback(sandbox.close)
            await sandbox.write_file(f"{WORKDIR}/start.txt", b"broken\n")
            session = gateway.open_session("r1", Budgets(**(budgets or {})))
            return Rig(gateway, engine, relay, session, sandbox, speller, dialect.bodies)

        yield make
