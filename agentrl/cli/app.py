"""The ``agentrl`` command: a table of subcommands, each imported only when it is the one that runs.

What agentrl raises on purpose is printed as what it says, without a traceback: exit code 2 for the user's mistakes
(:class:`~agentrl.errors.UsageError`), 1 for the world's.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

import agentrl
from agentrl.errors import AgentrlError, UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: ``module:function`` and the line that ``agentrl --help`` shows.

    The function's parameters are the options; it returns the exit code, or None for 0.
    """

    target: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "train": Command("agentrl.cli.train:train", "Train to the end, or until stopped."),
    "rollout": Command("agentrl.cli.rollout:rollout", "Make rollouts without training."),
    "verify": Command("agentrl.cli.verify:verify", "Check that a run trained exactly what was sampled."),
    "validate": Command("agentrl.cli.validate:validate", "Check that tasks are fit for training."),
    "check": Command("agentrl.cli.check:check", "Check that a sandbox backend keeps every promise."),
    "eval": Command("agentrl.cli.evaluate:evaluate", "Measure pass@k on a data set."),
    "outcomes": Command("agentrl.cli.outcomes:outcomes", "Print the table of how rollouts end."),
    "gc": Command("agentrl.cli.gc:gc", "Delete machines that dead runs left behind."),
    "plan": Command("agentrl.cli.plan:plan", "Show the chosen combination and what is wrong with it."),
    "plugins": Command("agentrl.cli.plugins:plugins", "List everything that can be chosen."),
    "settings": Command("agentrl.cli.settings:settings", "List every setting, also as the README's table."),
    "env": Command("agentrl.cli.env:env", "Print the variables that rollout workers need, such as for Ray."),
    "data": Command("agentrl.cli.data:data", "Make the data files of other training frameworks."),
    "doctor": Command("agentrl.cli.doctor:doctor", "Ask each chosen part whether it can work on this machine."),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one subcommand and exit with its code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        make_app(words)(words)
    except UsageError as error:
        typer.echo(f"agentrl: {error}", err=True)
        sys.exit(2)
    except AgentrlError as error:  # the world's fault: its words say more than a traceback
        typer.echo(f"agentrl: {type(error).__name__}: {error}", err=True)
        sys.exit(1)


def make_app(words: Sequence[str]) -> typer.Typer:
    """The application for this command line: only the command that ``words`` start with is really there."""
    app = typer.Typer(
        name="agentrl", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, callback=_options
    )
    for name, command in COMMANDS.items():
        function = _load(command.target) if name in words[:1] else _not_loaded
        app.command(name, short_help=command.summary)(function)
    return app


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=lambda wanted: _version(wanted=wanted), is_eager=True)
    ] = False,
) -> None:
    """Reinforcement learning of coding agents with any sandbox, any agent and any grader."""


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(agentrl.__version__)
        raise typer.Exit


def _not_loaded() -> None:
    """Stands in the list of commands for one that is not going to run."""


def _load(target: str) -> Callable[..., None]:
    module, _, function = target.partition(":")
    command: Callable[..., int | None] = getattr(importlib.import_module(module), function)

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        raise typer.Exit(command(*args, **kwargs) or 0)

    return run
