"""The chosen combination, checked before anything is paid for.

:func:`make_plan` finds every problem at once and never raises for one; :meth:`Plan.require` does. Parts are built when
first asked for. Not here: how a plan is printed (:mod:`agentrl.cli.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentrl.dialect import Dialect
from agentrl.engine import EngineLauncher
from agentrl.errors import AgentrlError, PlanError, UsageError
from agentrl.grader import Grader
from agentrl.harness import Harness
from agentrl.middleware import Middleware
from agentrl.plugins import Plugins
from agentrl.registry import Offer, Registry
from agentrl.rollout import checks
from agentrl.rollout.data import load_tasks, quarantine_path, read_quarantine
from agentrl.sandbox import SandboxBackend
from agentrl.settings import PluginSettings, Resolved, Settings, unknown_variables, variables
from agentrl.tasks import TaskFormat
from agentrl.trainer import Trainer
from agentrl.types import Task

if TYPE_CHECKING:
    from agentrl.gateway.upstream import Api

Purpose = Literal["train", "rollout", "eval", "validate", "embed"]
Role = Literal[
    "sandbox",
    "harness",
    "task format",
    "grader",
    "evaluation's task format",
    "evaluation's grader",
    "engine",
    "trainer",
    "middleware",
    "dialect",
]


class Parts:
    """The chosen parts, each imported and made when first asked for, and then kept. Raises: PluginError, SettingsError."""

    def __init__(self, registry: Registry, chosen: Mapping[Role, tuple[Offer, ...]]) -> None:
        self._registry = registry
        self._chosen = chosen

    @cached_property
    def backend(self) -> SandboxBackend:
        """Where machines come from."""
        part: SandboxBackend = self._one("sandbox")
        return part

    @cached_property
    def harness(self) -> Harness:
        """The agent program."""
        part: Harness = self._one("harness")
        return part

    @cached_property
    def task_format(self) -> TaskFormat:
        """The protocol's reading half."""
        part: TaskFormat = self._one("task format")
        return part

    @cached_property
    def grader(self) -> Grader:
        """The protocol's judging half."""
        part: Grader = self._one("grader")
        return part

    @cached_property
    def eval_protocol(self) -> tuple[TaskFormat, Grader]:
        """Both halves of the evaluation's protocol, where one plan serves training and evaluation."""
        return self._one("evaluation's task format"), self._one("evaluation's grader")

    @cached_property
    def engine_launcher(self) -> EngineLauncher:
        """Starts the engine; there is none when ``AGENTRL_ENGINE`` is a URL (:attr:`Plan.engine_url`)."""
        part: EngineLauncher = self._one("engine")
        return part

    @cached_property
    def trainer(self) -> Trainer:
        """The training loop."""
        part: Trainer = self._one("trainer")
        return part

    @cached_property
    def middleware(self) -> tuple[Middleware, ...]:
        """Outermost first."""
        return tuple(map(self._registry.build, self._chosen.get("middleware", ())))

    @cached_property
    def dialects(self) -> tuple[Dialect, ...]:
        """All wire APIs that are served."""
        return tuple(map(self._registry.build, self._chosen.get("dialect", ())))

    def _one(self, role: Role) -> Any:
        offers = self._chosen.get(role, ())
        if not offers:
            raise PlanError([f"no {role} is part of this plan"])
        return self._registry.build(offers[0])


@dataclass(frozen=True, slots=True)
class Plan:
    """What was chosen for a purpose, and what is wrong with it.

    ``problems`` forbid the run, ``notes`` do not, ``abilities`` say what the parts can do together. ``tasks`` are those of
    the purpose's data file, empty when it could not be read.
    """

    purpose: Purpose
    resolved: Resolved
    plugins: Plugins
    chosen: Mapping[Role, tuple[Offer, ...]]
    parts: Parts
    tasks: tuple[Task, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    abilities: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        """Core's settings."""
        return self.resolved.settings

    @property
    def engine_url(self) -> str:
        """The URL of a running engine, or empty when one is to be started."""
        return self.settings.engine if _is_url(self.settings.engine) else ""

    @property
    def remote(self) -> tuple[Api, str] | None:
        """API and URL of a model that is only asked, or None when tokens are sampled by an engine."""
        return remote_of(self.settings.engine)

    def require(self) -> Plan:
        """The plan itself. Raises: PlanError with all problems."""
        if self.problems:
            raise PlanError(self.problems)
        return self


def make_plan(resolved: Resolved, plugins: Plugins, *, purpose: Purpose = "train") -> Plan:
    """Choose the parts and check them. ``purpose`` decides what is needed: ``validate`` grades without a model, ``rollout``
    and ``eval`` do not train, ``eval`` reads the evaluation's data and protocol; ``embed`` gets its tasks one by one, of both
    protocols, from somebody else's loop."""
    problems = list(_names(resolved, plugins.registry))
    chosen = _choose(resolved.settings, plugins.registry, purpose, problems)
    problems += _availability(resolved, plugins.registry, chosen)
    problems += _numbers(resolved.settings, purpose)
    parts = Parts(plugins.registry, chosen)
    abilities = () if purpose == "validate" else _together(resolved.settings, parts, chosen, problems)
    tasks = _tasks(resolved.settings, parts, chosen, purpose, problems)
    tasks, quarantined = _without_unfit(resolved.settings, tasks, purpose, problems)
    notes = [*checks.remarks(resolved.settings), *quarantined, *(str(broken) for broken in plugins.broken)]
    return Plan(
        purpose, resolved, plugins, chosen, parts, tasks, tuple(dict.fromkeys(problems)), tuple(notes), abilities
    )


def declared(resolved: Resolved, registry: Registry, *purposes: Purpose) -> tuple[type[PluginSettings], ...]:
    """The settings classes of the parts that these purposes choose, and of what is always there. Raises: PluginError."""
    wanted = [item for purpose in purposes for item in _wanted(resolved.settings, purpose)]
    offers = [registry.get(kind, name) for _, kind, name in wanted] + [*registry.offers("dialects")]
    return tuple(dict.fromkeys(cls for offer in offers if (cls := registry.settings_class(offer)) is not None))


def data_path(settings: Settings, purpose: Purpose) -> tuple[str, Path | None]:
    """The variable that names the purpose's data file, and its value."""
    if purpose == "eval":
        return "SWE_EVAL_DATA", settings.eval_data
    return "SWE_TRAIN_DATA", settings.train_data


def protocol(settings: Settings, purpose: Purpose) -> str:
    """The protocol of the purpose's tasks."""
    return (settings.eval_protocol if purpose == "eval" else "") or settings.train_protocol


def _is_url(engine: str) -> bool:
    return engine.startswith(("http://", "https://"))


def remote_of(engine: str) -> tuple[Api, str] | None:
    """``openai:URL`` or ``anthropic:URL`` in its two parts; None for any other engine."""
    prefix, _, url = engine.partition(":")
    apis: Mapping[str, Api] = {"openai": "openai", "anthropic": "anthropic"}
    return (apis[prefix], url) if prefix in apis and _is_url(url) else None


def _wanted(settings: Settings, purpose: Purpose) -> Iterator[tuple[Role, str, str]]:
    """(role, kind, name) of every part that the purpose needs."""
    yield "sandbox", "sandboxes", settings.sandbox
    yield "task format", "task_formats", protocol(settings, purpose)
    yield "grader", "graders", protocol(settings, purpose)
    if purpose == "validate":
        return
    if purpose == "embed":
        yield "evaluation's task format", "task_formats", protocol(settings, "eval")
        yield "evaluation's grader", "graders", protocol(settings, "eval")
    yield "harness", "harnesses", settings.agent
    if not _is_url(settings.engine) and not remote_of(settings.engine):
        yield "engine", "engines", settings.engine
    for name in settings.middleware:
        yield "middleware", "middleware", name
    if purpose == "train":
        yield "trainer", "trainers", settings.trainer


def _choose(
    settings: Settings, registry: Registry, purpose: Purpose, problems: list[str]
) -> Mapping[Role, tuple[Offer, ...]]:
    chosen: dict[Role, tuple[Offer, ...]] = {}
    for role, kind, name in _wanted(settings, purpose):
        try:
            chosen[role] = (*chosen.get(role, ()), registry.get(kind, name))
        except UsageError as error:
            problems.append(str(error))
    if purpose != "validate":
        chosen["dialect"] = tuple(registry.offers("dialects"))
    return chosen


def _names(resolved: Resolved, registry: Registry) -> Iterator[str]:
    """Variables that nobody knows, and plugins that were asked for and are broken."""
    classes: tuple[type[PluginSettings], ...] = (Settings, *registry.settings_classes())
    known = [name for cls in classes for variable in variables(cls) for name in variable.spellings]
    unknown = unknown_variables(resolved.values, known)
    yield from unknown
    for broken in registry.broken:
        if broken.origin == "AGENTRL_PLUGINS":
            yield str(broken)


def _availability(resolved: Resolved, registry: Registry, chosen: Mapping[Role, tuple[Offer, ...]]) -> Iterator[str]:
    """SDKs that are not installed and settings that are not valid, of the chosen parts only."""
    for role, offers in chosen.items():
        for offer in offers:
            if missing := registry.missing(offer):
                yield f"{role} {offer.name}: {missing}"
            if (cls := registry.settings_class(offer)) is not None:
                yield from _complaints(lambda cls=cls: resolved.read(cls))  # type: ignore[misc]


def _numbers(settings: Settings, purpose: Purpose) -> Iterator[str]:
    yield from checks.timeouts(settings)
    if purpose == "validate":
        return
    yield from checks.caps(settings)
    if remote_of(settings.engine):
        yield from checks.remote(settings, trains=purpose == "train")
    else:
        yield from checks.model_folder(settings, weights=purpose == "train" or not _is_url(settings.engine))


def _together(
    settings: Settings, parts: Parts, chosen: Mapping[Role, tuple[Offer, ...]], problems: list[str]
) -> tuple[str, ...]:
    if not {"sandbox", "harness"} <= chosen.keys():
        return ()
    failed = list(_complaints(lambda: (parts.backend, parts.harness)))
    problems += failed
    if failed:
        return ()
    problems += checks.reach(settings, parts.backend, parts.harness)
    return tuple(checks.abilities(settings, parts.backend, parts.harness))


def _tasks(
    settings: Settings,
    parts: Parts,
    chosen: Mapping[Role, tuple[Offer, ...]],
    purpose: Purpose,
    problems: list[str],
) -> tuple[Task, ...]:
    if purpose == "embed":
        return ()
    variable, path = data_path(settings, purpose)
    absent = list(checks.data_file(variable, path))
    problems += absent
    if absent or path is None or not {"task format", "grader"} <= chosen.keys():
        return ()
    try:
        levels = settings.levels if purpose == "train" else ()
        return tuple(load_tasks(path, parts.task_format, parts.grader, levels=levels))
    except AgentrlError as error:
        problems.append(str(error))
        return ()


def _without_unfit(
    settings: Settings, tasks: tuple[Task, ...], purpose: Purpose, problems: list[str]
) -> tuple[tuple[Task, ...], list[str]]:
    """Training leaves quarantined tasks out; elsewhere they count, and a note says so."""
    _, data = data_path(settings, purpose)
    if data is None or purpose in ("validate", "embed"):
        return tasks, []
    path = quarantine_path(data, settings.quarantine)
    try:
        unfit = read_quarantine(path).keys() & {task.id for task in tasks}
    except UsageError as error:
        problems.append(str(error))
        return tasks, []
    if not unfit:
        return tasks, []
    named = ", ".join(sorted(unfit)[:3]) + (", ..." if len(unfit) > 3 else "")
    note = f"{len(unfit)} of {len(tasks)} tasks are unfit by {path} ({named})"
    if purpose != "train":
        return tasks, [f"{note}; they count all the same"]
    fit = tuple(task for task in tasks if task.id not in unfit)
    if not fit:
        problems.append(f"{path} leaves no task to train on: mend them and run `agentrl validate`")
    return fit, [f"{note} and left out"]


def _complaints(call: Callable[[], object]) -> Iterator[str]:
    """What ``call`` raises on purpose, as lines."""
    try:
        call()
    except AgentrlError as error:
        yield from str(error).splitlines()
