"""``plan.json``: the combination of a run as it was resolved, for people and for resuming."""

from __future__ import annotations

from pathlib import Path

import orjson

from agentrl.errors import UsageError
from agentrl.rollout.plan import Plan
from agentrl.settings import PluginSettings, Settings, variables

FILE = "plan.json"


def save_plan(plan: Plan, directory: Path) -> None:
    """Write the parts with their origins and every variable that was set. Secrets are left out."""
    resolved = plan.resolved
    classes: tuple[type[PluginSettings], ...] = (Settings, *plan.plugins.registry.settings_classes())
    known = [variable for cls in classes for variable in variables(cls)]
    document = {
        "parts": {role: [f"{o.name} ({o.origin})" for o in offers] for role, offers in plan.chosen.items()},
        "tasks": len(plan.tasks),
        # Of a secret the path of its file, when it has one: the last spelling.
        "set": {v.spellings[-1]: given for v in known if (given := resolved.values.get(v.spellings[-1]))},
        "settings": {
            v.name: {"value": resolved.values.get(v.name, v.default), "source": resolved.source(v.name)}
            for v in known
            if not v.secret
        },
    }
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f"{FILE}.tmp"
    temporary.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    temporary.replace(directory / FILE)


def load_values(directory: Path) -> dict[str, str]:
    """The variables that were set for the run in ``directory``. Raises: UsageError when there is no such run."""
    path = directory / FILE
    if not path.is_file():
        runs = sorted(p.parent.name for p in directory.parent.glob(f"*/{FILE}"))
        known = f"; there are: {', '.join(runs[-10:])}" if runs else ""
        raise UsageError(f"there is no run in {directory}{known}")
    values: dict[str, str] = orjson.loads(path.read_bytes())["set"]
    return values
