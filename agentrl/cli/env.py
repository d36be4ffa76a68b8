"""``agentrl env``: what the workers of another framework need in their environment, from what the chosen parts declare.

Nothing is listed by hand: core's settings and those of the chosen sandbox, harness, protocols, engine, trainer and
middleware are all there is. Secrets go as paths of files, never as values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.errors import SettingsError
from agentrl.plugins import load_plugins
from agentrl.rollout.plan import declared
from agentrl.settings import PluginSettings, Resolved, Settings, Variable, forwarded, resolve, spelled, variables


def env(
    assignments: Assignments = None,
    ray_json: Annotated[bool, typer.Option("--ray-json", help="Print a Ray runtime environment.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a document.")] = False,
    also: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="One more variable in it; may be repeated.")
    ] = None,
) -> None:
    """Print the variables that rollout workers need: those that are set, one NAME=VALUE a line."""
    resolved = resolve(overrides=read_assignments(assignments))
    classes = declared(resolved, load_plugins(resolved).registry, "train", "eval")
    if markdown:
        typer.echo(environment_markdown(classes))
        return
    found = {**worker_environment(resolved, classes), **read_assignments(also)}
    typer.echo(json.dumps({"env_vars": found}) if ray_json else "\n".join(f"{n}={v}" for n, v in found.items()))


def worker_environment(resolved: Resolved, classes: Sequence[type[PluginSettings]]) -> Mapping[str, str]:
    """The variables of core and ``classes`` that are set. Raises: SettingsError for a secret that lies in no file."""
    bare = [v.name for v in _variables(classes) if v.secret and resolved.values.get(v.name)]
    if bare:
        raise SettingsError(
            f"{', '.join(bare)}: a secret goes to workers as a file only: write it to one that every machine has, and name "
            f"that in {', '.join(f'{name}_FILE' for name in bare)} instead"
        )
    files = {v.spellings[-1] for v in _variables(classes) if v.secret}
    given = {name: resolved.values[name] for name in forwarded(classes) if name in resolved.values}
    return {n: str(Path(v).expanduser().absolute()) if n in files else v for n, v in given.items()}


def environment_markdown(classes: Sequence[type[PluginSettings]]) -> str:
    """What :func:`worker_environment` may hold, as a table."""
    names = set(forwarded(classes))
    lines = ["| Variable | Default | Meaning |", "|---|---|---|"]
    for v in _variables(classes):
        name = v.spellings[-1]
        if name in names:
            meaning = f"File that holds: {v.description}" if v.secret else v.description
            default = f"`{spelled(v.default)}`" if v.default else ""
            lines.append(f"| `{name}` | {default} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def _variables(classes: Sequence[type[PluginSettings]]) -> tuple[Variable, ...]:
    """Each variable once."""
    everyone: tuple[type[PluginSettings], ...] = (Settings, *classes)
    return tuple({v.name: v for cls in everyone for v in variables(cls)}.values())
