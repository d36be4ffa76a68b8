"""What can be chosen: names and where they lead, without importing any of it.

An :class:`Offer` is a name with an import string. It is followed by :meth:`Registry.build` only, because importing an SDK
costs up to a second and may fail. Not here: who makes offers (:mod:`agentrl.plugins`, :mod:`agentrl.builtin`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentrl.dialect import Dialect
from agentrl.engine import EngineLauncher
from agentrl.errors import AgentrlError, PluginError
from agentrl.extras import missing_requirements
from agentrl.grader import Grader
from agentrl.harness import Harness
from agentrl.middleware import Middleware
from agentrl.sandbox import SandboxBackend
from agentrl.settings import PluginSettings, Resolved, did_you_mean
from agentrl.tasks import TaskFormat
from agentrl.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of part: what people call one, the variable that chooses it, the Protocol that it fulfils."""

    noun: str
    variable: str
    interface: type

    def members(self) -> tuple[str, ...]:
        """The names that an implementation must have."""
        return tuple(n for n in vars(self.interface) if n == "__call__" or not n.startswith("_"))


KINDS: Mapping[str, Kind] = {
    "sandboxes": Kind("sandbox", "SWE_SANDBOX", SandboxBackend),
    "harnesses": Kind("harness", "SWE_AGENT", Harness),
    "graders": Kind("grader", "SWE_TRAIN_PROTOCOL", Grader),
    "task_formats": Kind("task format", "SWE_TRAIN_PROTOCOL", TaskFormat),
    "dialects": Kind("dialect", "", Dialect),
    "middleware": Kind("middleware", "AGENTRL_MIDDLEWARE", Middleware),
    "engines": Kind("engine", "AGENTRL_ENGINE", EngineLauncher),
    "trainers": Kind("trainer", "AGENTRL_TRAINER", Trainer),
}


@dataclass(frozen=True, slots=True)
class Offer:
    """A part that can be chosen. ``target`` and ``settings`` are ``module:attr``.

    ``plugin`` is the module that offers it. ``origin`` says whence that came: a distribution with its version,
    ``built-in``, ``AGENTRL_PLUGINS``, or ``import string`` for a target that was named directly. ``distribution`` is the one
    that has ``extra``, empty when unknown.
    """

    kind: str
    name: str
    target: str
    settings: str = ""
    extra: str = ""
    summary: str = ""
    plugin: str = ""
    origin: str = "import string"
    distribution: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin that could not be loaded, with what it had offered until then."""

    plugin: str
    module: str
    origin: str
    error: Exception
    offers: tuple[Offer, ...] = ()

    def __str__(self) -> str:
        return f"plugin {self.plugin} ({self.origin}) is broken: {type(self.error).__name__}: {self.error}"


def same_name(name: str) -> str:
    """The form in which names are compared: case, ``-`` and ``_`` make no difference."""
    return name.strip().lower().replace("_", "-")


class Registry:
    """All offers, in the order in which they were made."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._offers: list[Offer] = []
        self._broken: list[Broken] = []

    def add(self, offer: Offer) -> None:
        """Take up an offer. Two of one name are an error only once that name is asked for."""
        self._offers.append(offer)

    def add_broken(self, broken: Broken) -> None:
        """Remember a plugin that failed, for those who ask for what it offers."""
        self._broken.append(broken)

    @property
    def broken(self) -> Sequence[Broken]:
        """The plugins that could not be loaded."""
        return tuple(self._broken)

    def offers(self, kind: str) -> Sequence[Offer]:
        """The offers of one kind."""
        return tuple(offer for offer in self._offers if offer.kind == kind)

    def get(self, kind: str, name: str) -> Offer:
        """The one offer of that name; a ``module:attr`` is an offer of itself.

        Raises: PluginError for an unknown name, one whose plugin is broken, and one that several plugins offer.
        """
        if ":" in name:
            return Offer(kind, name, name)
        found = [offer for offer in self.offers(kind) if same_name(offer.name) == same_name(name)]
        if len(found) > 1:
            raise PluginError(_ambiguous(found))
        if not found:
            raise self._unknown(kind, name)
        return found[0]

    def _unknown(self, kind: str, name: str) -> PluginError:
        noun, wanted = KINDS[kind].noun, same_name(name)
        for broken in self._broken:
            lost = {same_name(o.name) for o in broken.offers if o.kind == kind} | {same_name(broken.plugin)}
            if wanted in lost:
                error = PluginError(f"the {noun} {name} cannot be used: {broken}")
                error.__cause__ = broken.error
                return error
        names = sorted({offer.name for offer in self.offers(kind)})
        known = f"Known: {', '.join(names)}." if names else "No plugin offers one."
        suspects = "".join(f"\n  {broken}" for broken in self._broken)
        hint = f" It may come from one of these:{suspects}" if suspects else ""
        return PluginError(f"there is no {noun} {name}.{did_you_mean(wanted, names)} {known}{hint}")

    def settings_class(self, offer: Offer) -> type[PluginSettings] | None:
        """The class of the offer's settings, if it has any. Raises: PluginError."""
        if not offer.settings:
            return None
        with _explained(offer, offer.settings):
            found = _follow(offer.settings)
        if not (isinstance(found, type) and issubclass(found, PluginSettings)):
            raise PluginError(
                f"{offer.settings} (settings of {offer.name}) does not derive from agentrl.api.PluginSettings"
            )
        return found

    def settings_classes(self) -> Mapping[type[PluginSettings], Offer]:
        """The settings classes of all offers, each with the first offer that uses it."""
        classes: dict[type[PluginSettings], Offer] = {}
        for offer in self._offers:
            if (cls := self.settings_class(offer)) is not None:
                classes.setdefault(cls, offer)
        return classes

    def missing(self, offer: Offer) -> str | None:
        """None if what the offer's extra asks for is installed, otherwise what is missing and the command that adds it."""
        lacking = missing_requirements(offer.distribution, offer.extra) if offer.extra and offer.distribution else ()
        return f"{'; '.join(lacking)}: {_install(offer)}" if lacking else None

    def build(self, offer: Offer) -> Any:
        """Import the offer's target and call it, with its settings if it has any.

        Raises: PluginError (cannot be imported, SDK not installed, is not what its kind asks for), SettingsError.
        """
        cls = self.settings_class(offer)
        arguments = () if cls is None else (self._resolved.read(cls),)
        with _explained(offer, offer.target):
            part = _follow(offer.target)(*arguments)
        kind = KINDS[offer.kind]
        lacking = [member for member in kind.members() if not hasattr(part, member)]
        if lacking:
            raise PluginError(
                f"{offer.target} is no {kind.noun}: it lacks {', '.join(lacking)} ({kind.interface.__name__})"
            )
        return part


def _ambiguous(offers: Sequence[Offer]) -> str:
    first = offers[0]
    makers = " and ".join(f"{o.plugin} ({o.origin})" for o in offers)
    choices = " or ".join(f"AGENTRL_DISABLE_PLUGINS={o.plugin}" for o in offers)
    return f"the {KINDS[first.kind].noun} {first.name} is offered by {makers}. Decide with {choices}."


def _install(offer: Offer) -> str:
    if not offer.distribution:
        return f"the extra {offer.extra} of the distribution that brings {offer.plugin or offer.target}"
    return f"pip install '{offer.distribution}[{offer.extra}]'"


def _follow(path: str) -> Any:
    """What ``module:attr`` names."""
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PluginError(f"{module} has no {attribute}")
        found = getattr(found, part)
    return found


@contextmanager
def _explained(offer: Offer, path: str) -> Iterator[None]:
    """Turns a failed import into what to do about it: install the SDK, or mend a plugin that names what is not there."""
    who = f"the {KINDS[offer.kind].noun} {offer.name} ({offer.origin})"
    try:
        yield
    except AgentrlError as error:
        raise PluginError(f"{who}: {error}") from error
    except ImportError as error:
        own = path.partition(":")[0].partition(".")[0]
        is_sdk = offer.extra and (error.name or "").partition(".")[0] != own
        remedy = f"install what it needs: {_install(offer)}" if is_sdk else "mend the plugin, or choose another"
        raise PluginError(f"{who} cannot be imported: {error}; {remedy}") from error
    except Exception as error:
        error.add_note(f"This happened while making {who} from {path}.")
        raise
