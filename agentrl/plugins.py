"""Finding plugins, loading them in isolation, and announcing events to them.

Order: what core ships, the modules of ``AGENTRL_PLUGINS``, installed entry points of group ``agentrl``. pluggy keeps the
hooks; loading is our own loop, because pluggy's stops at the first plugin that fails. A plugin that fails is remembered
in the registry and takes nobody along. Not here: what the offers lead to (:mod:`agentrl.registry`).
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pluggy

from agentrl import builtin, hookspecs
from agentrl.errors import PluginError
from agentrl.registry import KINDS, Broken, Offer, Registry, same_name
from agentrl.settings import Resolved, did_you_mean, variables

GROUP = "agentrl"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin before it is loaded. ``name``: of its entry point, or the module's. ``distribution`` may be unknown."""

    name: str
    module: str
    origin: str
    distribution: str = ""

    def goes_by(self) -> frozenset[str]:
        """The names by which ``AGENTRL_DISABLE_PLUGINS`` may call it."""
        return frozenset(map(same_name, filter(None, (self.name, self.module, self.distribution))))


class Plugins:
    """The loaded plugins: what they offer, and a way to tell them what happened."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._manager = pluggy.PluginManager("agentrl")
        self._manager.add_hookspecs(hookspecs)
        self._origins: dict[str, str] = {}

    @property
    def broken(self) -> Sequence[Broken]:
        """The plugins that could not be loaded, each with its error."""
        return self.registry.broken

    def load(self, candidate: Candidate) -> None:
        """Load one plugin, completely or not at all."""
        offers: list[Offer] = []
        error = _caught(lambda: self._register(candidate, offers))
        if error is None:
            for offer in offers:
                self.registry.add(offer)
        else:
            self._manager.unregister(name=candidate.module)
            self.registry.add_broken(Broken(candidate.name, candidate.module, candidate.origin, error, tuple(offers)))

    def announce(self, event: str, **facts: object) -> None:
        """Tell every plugin. What one of them raises is logged with its name and goes no further."""
        if not hasattr(hookspecs, event):
            raise ValueError(f"{event} is not an event of agentrl.hookspecs")
        for listener in getattr(self._manager.hook, event).get_hookimpls():
            hook = self._only(event, listener.plugin)
            error = _caught(lambda hook=hook: hook(**facts))  # type: ignore[misc]
            if error is not None:
                plugin, origin = listener.plugin_name, self._origins[listener.plugin_name]
                log.error("plugin %s (%s) failed in %s", plugin, origin, event, exc_info=error)

    def _register(self, candidate: Candidate, offers: list[Offer]) -> None:
        plugin = importlib.import_module(candidate.module)
        self._manager.register(plugin, name=candidate.module)
        self._manager.check_pending()
        _check_marked(plugin, self._manager)
        for kind in KINDS:
            self._only(f"agentrl_register_{kind}", plugin)(register=_registrar(kind, candidate, offers))
        for offer in offers:
            if (cls := self.registry.settings_class(offer)) is not None:
                variables(cls)
        self._origins[candidate.module] = candidate.origin

    def _only(self, hook: str, plugin: Any) -> Callable[..., Any]:
        others = [other for other in self._manager.get_plugins() if other is not plugin]
        return self._manager.subset_hook_caller(hook, others)


def load_plugins(resolved: Resolved) -> Plugins:
    """Load everything that is installed or named and not disabled.

    Raises: PluginError when ``AGENTRL_DISABLE_PLUGINS`` names a plugin that is not there.
    """
    candidates: dict[str, Candidate] = {}
    for candidate in _candidates(resolved):
        candidates.setdefault(candidate.module, candidate)
    disabled = resolved.settings.disable_plugins
    _check_disabled(disabled, candidates.values())
    plugins = Plugins(Registry(resolved))
    for candidate in candidates.values():
        if not _is_disabled(candidate, disabled):
            plugins.load(candidate)
    return plugins


def _candidates(resolved: Resolved) -> Iterator[Candidate]:
    yield Candidate("builtin", builtin.__name__, "built-in", "agentrl")
    for module in resolved.settings.plugins:
        yield Candidate(module, module, "AGENTRL_PLUGINS")
    for point in metadata.entry_points(group=GROUP):
        # metadata.entry_points keeps the first of two copies of a distribution on sys.path.
        name, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
        yield Candidate(point.name, point.module, f"{name} {version}".strip() or "an unknown distribution", name)


def _is_disabled(candidate: Candidate, names: Sequence[str]) -> bool:
    return candidate.origin != "built-in" and not candidate.goes_by().isdisjoint(map(same_name, names))


def _check_disabled(names: Sequence[str], candidates: Iterable[Candidate]) -> None:
    known = {name for candidate in candidates for name in candidate.goes_by()}
    for name in names:
        if same_name(name) not in known:
            hint = did_you_mean(same_name(name), sorted(known))
            raise PluginError(f"AGENTRL_DISABLE_PLUGINS names {name}, but there is no such plugin.{hint}")


def _check_marked(plugin: Any, manager: pluggy.PluginManager) -> None:
    """A hook without its mark would be ignored in silence."""
    hooks = {caller.name for caller in manager.get_hookcallers(plugin) or ()}
    for name, function in vars(plugin).items():
        if name.startswith("agentrl_") and inspect.isfunction(function) and name not in hooks:
            raise PluginError(f"{plugin.__name__}.{name} is not marked with @hookimpl")
    if not hooks:
        raise PluginError(f"{plugin.__name__} has no function marked with @hookimpl")


def _registrar(kind: str, candidate: Candidate, offers: list[Offer]) -> hookspecs.Register:
    """The ``register`` function of one hook call, which knows who calls it."""

    def register(name: str, target: str, *, settings: str = "", extra: str = "", summary: str = "") -> None:
        for path in filter(None, (target, settings)):
            if not all(path.partition(":")[::2]):
                raise PluginError(f"{path!r} of the {KINDS[kind].noun} {name} is not of the form module:attr")
        if any(o.kind == kind and same_name(o.name) == same_name(name) for o in offers):
            raise PluginError(f"{candidate.module} offers the {KINDS[kind].noun} {name} twice")
        offers.append(
            Offer(
                kind, name, target, settings, extra, summary, candidate.module, candidate.origin, candidate.distribution
            )
        )

    return register


def _caught(call: Callable[[], object]) -> Exception | None:
    """The boundary between a plugin's faults and the run."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error
    return None
