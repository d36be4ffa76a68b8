"""The ``scaleswe`` protocol: repositories with a broken behaviour, graded by tests in a fresh sandbox."""

from __future__ import annotations

from agentrl.api import Register, hookimpl

_SETTINGS = "agentrl_scaleswe.settings:ScaleSweSettings"


@hookimpl
def agentrl_register_task_formats(register: Register) -> None:
    """Offer ``scaleswe``."""
    register(
        "scaleswe",
        "agentrl_scaleswe.tasks:ScaleSweFormat",
        settings=_SETTINGS,
        summary="JSONL rows with an image, a workdir, a problem statement and tests",
    )


@hookimpl
def agentrl_register_graders(register: Register) -> None:
    """Offer ``scaleswe``."""
    register(
        "scaleswe",
        "agentrl_scaleswe.grader:ScaleSweGrader",
        settings=_SETTINGS,
        summary="A command, a test file or a SWE-bench Pro harness decides, in a fresh sandbox",
    )
