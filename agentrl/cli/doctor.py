"""``agentrl doctor``: whether the chosen parts can work on this machine, and the command for what is missing.

A plan asks whether the parts fit each other; the doctor asks each part whether it fits the machine (``probe()``).
"""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.cli.plan import open_plan
from agentrl.errors import AgentrlError
from agentrl.rollout.checks import model_folder
from agentrl.rollout.plan import Plan, Purpose
from agentrl.settings import resolve

PROBE_SEC = 120.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What was asked and the answer: ``missing`` is empty when all is well, else what is missing and what adds it."""

    what: str
    missing: str = ""
    detail: str = ""


def doctor(
    assignments: Assignments = None,
    purpose: Annotated[Purpose, typer.Option("--for", help="What is to be done here.")] = "train",
    model: Annotated[
        Path | None, typer.Option("--model", help="Only look at the chat format of this model's folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Ask each chosen part whether it can work on this machine; exit code 1 if anything is missing."""
    if model is not None:
        settings = resolve(overrides=read_assignments(assignments)).settings
        findings = chat_format(model, settings.renderer)
    else:
        findings = asyncio.run(examine(open_plan(assignments, purpose)))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings, Console())
    return int(any(finding.missing for finding in findings))


def chat_format(folder: Path, renderer: str) -> list[Finding]:
    """What the model's chat format can do, found by trying it. ``missing`` is what forbids training."""
    from agentrl.tokens import load_codec  # transformers takes a second

    try:
        codec = load_codec(folder, renderer=renderer)
        probe = codec.probe()
    except AgentrlError as error:
        return [Finding(f"model {folder.name}", missing=str(error))]
    roles = ", ".join(probe.appendable)
    kept = "yes: a longer conversation begins with the ids of the shorter one"
    rewritten = "no: the template rewrites its own past. What was sampled stays as it was here, so training is exact"
    readable = "yes: a call in the template's spelling reads back as the same call"
    unreadable = "no: only agents that put commands into plain text can use this model; try AGENTRL_RENDERER"
    plain = "no: they are encoded as plain text"
    leaking = "text from tools can become control tokens: do not train with this format; try AGENTRL_RENDERER=template"
    nothing = "nothing can follow a reply without a new chain: use another chat template, or each turn is a sample"
    return [
        Finding("chat format", detail=codec.name),
        Finding("prefix-stable?", detail=kept if probe.prefix_stable else rewritten),
        Finding("what may follow a reply?", detail=roles, missing="" if roles else nothing),
        Finding("do tool calls round-trip?", detail=readable if probe.tools_round_trip else unreadable),
        Finding(
            "are control ids reachable from content?",
            detail=plain if probe.content_is_plain else "",
            missing="" if probe.content_is_plain else leaking,
        ),
    ]


async def examine(plan: Plan) -> list[Finding]:
    """All findings: the machine, the plan, the model, then the chosen parts."""
    machine = [Finding("python", detail=platform.python_version()), _git()]
    problems = [Finding("plan", missing=problem) for problem in plan.problems]
    return [*machine, *problems, *_model(plan), *[finding async for finding in _parts(plan)]]


def _git() -> Finding:
    found = shutil.which("git")
    return Finding("git", "" if found else "git is not installed: apt-get install git", found or "")


def _model(plan: Plan) -> Iterator[Finding]:
    """The model's chat template, tried out; a folder that cannot be loaded is among the plan's problems already."""
    folder = plan.settings.model
    if plan.purpose == "validate" or folder is None or any(model_folder(plan.settings, weights=False)):
        return
    from agentrl.tokens import load_codec  # transformers takes a second

    try:
        codec = load_codec(folder, renderer=plan.settings.renderer)
        yield Finding(f"model {folder.name}", detail=f"{codec.name}. {' '.join(codec.probe().notes)}")
    except AgentrlError as error:
        yield Finding(f"model {folder.name}", missing=str(error))


async def _parts(plan: Plan) -> AsyncIterator[Finding]:
    builders: dict[str, Callable[[], Any]] = {
        "sandbox": lambda: plan.parts.backend,
        "harness": lambda: plan.parts.harness,
        "task format": lambda: plan.parts.task_format,
        "grader": lambda: plan.parts.grader,
        "engine": lambda: plan.parts.engine_launcher,
        "trainer": lambda: plan.parts.trainer,
    }
    for role, offers in plan.chosen.items():
        if role in builders and not plan.plugins.registry.missing(offers[0]):
            missing = await _probe(builders[role])
            if missing not in plan.problems:
                yield Finding(f"{role} {offers[0].name}", missing, offers[0].summary)
    if "sandbox" in plan.chosen:
        with suppress(AgentrlError):  # A backend that cannot be built has been reported above.
            await plan.parts.backend.aclose()


async def _probe(build: Callable[[], Any]) -> str:
    """What the part says is missing; a part that cannot even be made says so by its error."""
    try:
        part = build()
        probe: Callable[[], Awaitable[str | None]] | None = getattr(part, "probe", None)
        if probe is None:
            return ""
        async with asyncio.timeout(PROBE_SEC):
            return await probe() or ""
    except TimeoutError:
        return f"no answer within {PROBE_SEC:g} s"
    except AgentrlError as error:
        return str(error)
    except (OSError, ImportError) as error:
        return f"{type(error).__name__}: {error}"


def _show(findings: Sequence[Finding], console: Console) -> None:
    for finding in findings:
        mark = "[bold red]✗[/]" if finding.missing else "[green]✓[/]"
        console.print(
            f"{mark} {escape(finding.what)}  [dim]{escape(finding.detail)}[/]", highlight=False, soft_wrap=True
        )
        if finding.missing:
            console.print(f"    {escape(finding.missing)}", highlight=False, soft_wrap=True)
