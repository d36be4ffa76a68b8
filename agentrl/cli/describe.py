"""A plan as plain data, for the views of ``agentrl plan`` and ``agentrl plugins``. No secret is in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentrl.errors import SettingsError
from agentrl.registry import Offer
from agentrl.rollout.plan import Plan
from agentrl.settings import PluginSettings, Resolved, Settings, Source, Variable, spelled, variables


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. ``owner``: ``core``, or role and name of the part that it belongs to."""

    owner: str
    variable: Variable
    value: str
    source: Source


def setting_rows(plan: Plan) -> tuple[Row, ...]:
    """Core's settings and those of the chosen parts, each variable once."""
    rows: dict[str, Row] = {}
    for owner, cls in _classes(plan):
        for row in _rows(owner, cls, plan.resolved):
            rows.setdefault(row.variable.name, row)
    return tuple(rows.values())


def _classes(plan: Plan) -> Iterator[tuple[str, type[PluginSettings]]]:
    yield "core", Settings
    for role, offers in plan.chosen.items():
        for offer in offers:
            if (cls := plan.plugins.registry.settings_class(offer)) is not None:
                yield f"{role} {offer.name}", cls


def _rows(owner: str, cls: type[PluginSettings], resolved: Resolved) -> Iterator[Row]:
    try:
        values = resolved.read(cls)
    except SettingsError:
        # The plan names the faulty value among its problems; here the variables are shown as they were given.
        values = None
    for variable in variables(cls):
        if values is not None:
            value = getattr(values, variable.field)
            shown = "(set)" if variable.secret and value else spelled(value)
        else:
            shown = "" if variable.secret else resolved.values.get(variable.name, variable.default)
        yield Row(owner, variable, shown, resolved.source(variable.name))


def document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON."""
    return {
        "purpose": plan.purpose,
        "parts": {role: [offer_document(offer) for offer in offers] for role, offers in plan.chosen.items()},
        "engine_url": plan.engine_url,
        "tasks": len(plan.tasks),
        "settings": {
            row.variable.name: {"value": row.value, "source": row.source, "owner": row.owner}
            for row in setting_rows(plan)
        },
        "abilities": list(plan.abilities),
        "notes": list(plan.notes),
        "problems": list(plan.problems),
    }


def offer_document(offer: Offer) -> dict[str, str]:
    """An offer as JSON."""
    return {
        "kind": offer.kind,
        "name": offer.name,
        "origin": offer.origin,
        "plugin": offer.plugin,
        "target": offer.target,
        "extra": offer.extra,
        "summary": offer.summary,
    }
