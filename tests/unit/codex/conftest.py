"""A gateway, a sandbox that has the real program baked in, and a tokenizer and template like a model's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Done, Rig, open_rig
from tiny_model import tiny_model

from agentrl.gateway.dialects.openai_responses import OpenAIResponses
from agentrl.settings import resolve
from agentrl_codex.harness import Codex
from agentrl_codex.settings import CodexSettings


def codex(**variables: str) -> Codex:
    """The harness with these settings."""
    return Codex(resolve(variables).read(CodexSettings))


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer and a ChatML template with tools."""
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def machines() -> Iterator[Path]:
    """The files of all sandboxes here. The baked program is too big to be kept like other files of tests."""
    folder = Path(tempfile.mkdtemp(prefix="agentrl-codex-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def make_rig(model_dir: Path, machines: Path) -> AsyncIterator[Callable[..., Any]]:
    """``await make_rig(replies, budgets={}, **gateway options)``."""
    async with AsyncExitStack() as stack:

        async def make(said: Sequence[str], **options: Any) -> Rig:
            parts = {"harness": codex(), "dialect": OpenAIResponses(), "model_dir": model_dir, "machines": machines}
            return await open_rig(stack, said, **parts, **options)

        yield make


@pytest.fixture
def run() -> Callable[..., Any]:
    """``await run(rig, problem, job field=…, VARIABLE=…)``: Codex to its end."""

    async def run_codex(rig: Rig, problem: str, **more: Any) -> Done:
        variables = {name: value for name, value in more.items() if name.isupper()}
        fields = {name: value for name, value in more.items() if not name.isupper()}
        return await rig.run(codex(**variables), problem, **fields)

    return run_codex
