"""Every extension point and event: the table of contents of what plugins can do.

A plugin is a module with functions marked :data:`hookimpl`. Registration hooks get a ``register`` function and name
what they offer by import string, so that nothing heavy is imported until it is chosen::

    from agentrl.api import hookimpl

    @hookimpl
    def agentrl_register_sandboxes(register):
        register("e2b", "agentrl_e2b.backend:E2BBackend", settings="agentrl_e2b.settings:E2BSettings",
                 extra="e2b", summary="Cloud machines of E2B")

The attribute is called with the settings instance when ``settings`` is given, otherwise with nothing. Events are
announced after the fact; an exception in one is logged with the plugin's name and never reaches the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pluggy

from agentrl.types import Rollout, Turn

hookspec = pluggy.HookspecMarker("agentrl")
hookimpl = pluggy.HookimplMarker("agentrl")


class Register(Protocol):
    """What a registration hook calls once for each offer."""

    def __call__(self, name: str, target: str, *, settings: str = "", extra: str = "", summary: str = "") -> None:
        """Offer ``target`` (``module:attr``) as ``name``. ``extra``: the pip extra that brings its SDK."""
        ...


@hookspec
def agentrl_register_sandboxes(register: Register) -> None:
    """Offer :class:`~agentrl.sandbox.SandboxBackend` factories; chosen by ``SWE_SANDBOX``."""


@hookspec
def agentrl_register_harnesses(register: Register) -> None:
    """Offer :class:`~agentrl.harness.Harness` factories; chosen by ``SWE_AGENT``."""


@hookspec
def agentrl_register_graders(register: Register) -> None:
    """Offer :class:`~agentrl.grader.Grader` factories; chosen by ``SWE_TRAIN_PROTOCOL`` and ``SWE_EVAL_PROTOCOL``."""


@hookspec
def agentrl_register_task_formats(register: Register) -> None:
    """Offer :class:`~agentrl.tasks.TaskFormat` factories under the name of their protocol."""


@hookspec
def agentrl_register_dialects(register: Register) -> None:
    """Offer :class:`~agentrl.dialect.Dialect` factories; all of them are served."""


@hookspec
def agentrl_register_middleware(register: Register) -> None:
    """Offer :class:`~agentrl.middleware.Middleware` factories; chosen by ``AGENTRL_MIDDLEWARE``."""


@hookspec
def agentrl_register_engines(register: Register) -> None:
    """Offer :class:`~agentrl.engine.EngineLauncher` factories; chosen by ``AGENTRL_ENGINE``."""


@hookspec
def agentrl_register_trainers(register: Register) -> None:
    """Offer :class:`~agentrl.trainer.Trainer` factories; chosen by ``AGENTRL_TRAINER``."""


@hookspec
def agentrl_rollout_started(rollout_id: str, task_id: str, iteration: int) -> None:
    """A rollout is about to boot its sandbox."""


@hookspec
def agentrl_turn_recorded(rollout_id: str, turn: Turn) -> None:
    """A turn was recorded, before its reply is delivered."""


@hookspec
def agentrl_rollout_finished(rollout: Rollout) -> None:
    """A rollout is in the journal."""


@hookspec
def agentrl_iteration_finished(iteration: int, metrics: Mapping[str, object]) -> None:
    """An iteration is in ``metrics.jsonl``."""
