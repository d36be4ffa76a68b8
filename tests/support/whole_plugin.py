"""A plugin with one part of each kind, as source: what a plan can be made of without any machine, model or SDK."""

from __future__ import annotations

import json

from plugin_folder import PluginFolder

SOURCE = """
from agentrl.api import Capabilities, Layer, PluginSettings, RowError, Task, hookimpl
from pydantic import Field, SecretStr


class Settings(PluginSettings):
    reach: str = Field("loopback", validation_alias="SWE_WHOLE_REACH", description="Ways to the host")
    missing: str = Field("", validation_alias="SWE_WHOLE_MISSING", description="What probe says")
    where: str = Field("host", validation_alias="SWE_WHOLE_WHERE", description="Where the agent runs")
    password: SecretStr | None = Field(None, validation_alias="SWE_WHOLE_PASSWORD", description="Never shown")


class Backend:
    def __init__(self, settings):
        self.settings = settings
        ways = frozenset(settings.reach.split()) - {"nothing"}
        self.capabilities = Capabilities(True, True, frozenset({"cpus"}), True, ways)

    async def create(self, spec, *, labels, lifetime_sec): raise NotImplementedError
    async def attach(self, sandbox_id): raise NotImplementedError
    async def list(self, labels): return []
    async def delete(self, sandbox_id): ...
    async def prepare(self, image, resources, layers): return image
    async def aclose(self): self.closed = True
    async def probe(self): return self.settings.missing or None


class Harness:
    def __init__(self, settings): self.runs_in = settings.where
    def layers(self): return [Layer("node")]
    async def install(self, sandbox): ...
    async def run(self, sandbox, job): raise NotImplementedError


class Format:
    def read(self, row):
        if "id" not in row:
            raise RowError("field id is absent")
        return Task(row["id"], "whole", "do it", "/w", level=row.get("level", ""))
    async def prepare(self, sandbox, task): ...
    async def collect(self, sandbox, task, prepared): ...


class Grader:
    def check(self, task): return None
    def gold(self, task): return None
    async def grade(self, task, submission, open_sandbox, *, timeout_sec): raise NotImplementedError


class Launcher:
    async def start(self, spec): raise NotImplementedError
    async def probe(self): return None


class Trainer:
    async def train(self, run): raise NotImplementedError
    def last_checkpoint(self, checkpoint_dir): return 0
    async def probe(self): return None


class Pass:
    async def __call__(self, turn, call_next): return await call_next(turn)


@hookimpl
def agentrl_register_sandboxes(register):
    register("whole", f"{__name__}:Backend", settings=f"{__name__}:Settings", summary="No machines")

@hookimpl
def agentrl_register_harnesses(register):
    register("whole", f"{__name__}:Harness", settings=f"{__name__}:Settings")

@hookimpl
def agentrl_register_task_formats(register):
    register("whole", f"{__name__}:Format")
    register("half", f"{__name__}:Format")

@hookimpl
def agentrl_register_graders(register):
    register("whole", f"{__name__}:Grader")

@hookimpl
def agentrl_register_engines(register):
    register("whole", f"{__name__}:Launcher")

@hookimpl
def agentrl_register_trainers(register):
    register("whole", f"{__name__}:Trainer")

@hookimpl
def agentrl_register_middleware(register):
    register("pass-1", f"{__name__}:Pass")
    register("pass-2", f"{__name__}:Pass")
"""


def whole_environment(folder: PluginFolder) -> dict[str, str]:
    """The variables of a combination without any problem; its files lie in ``folder``."""
    model = folder.path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 40960}))
    for name in ("tokenizer.json", "model.safetensors"):
        (model / name).write_bytes(b"")
    data = folder.path / "tasks.jsonl"
    data.write_text('{"id": "t1", "level": "easy"}\n{"id": "t2", "level": "hard"}\n')
    chosen = ("SWE_SANDBOX", "SWE_AGENT", "SWE_TRAIN_PROTOCOL", "AGENTRL_ENGINE", "AGENTRL_TRAINER")
    return {
        **dict.fromkeys(chosen, "whole"),
        "AGENTRL_PLUGINS": folder.module("whole", SOURCE),
        "AGENTRL_DISABLE_PLUGINS": "agentrl",
        "AGENTRL_MODEL": str(model),
        "SWE_TRAIN_DATA": str(data),
    }
