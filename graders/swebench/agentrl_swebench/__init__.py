"""The ``swebench`` protocol: rows of SWE-bench Verified and its kin, judged by the official ``swebench`` package."""

from __future__ import annotations

from agentrl.api import Register, hookimpl

_SETTINGS = "agentrl_swebench.settings:SweBenchSettings"


@hookimpl
def agentrl_register_task_formats(register: Register) -> None:
    """Offer ``swebench``."""
    register(
        "swebench",
        "agentrl_swebench.tasks:SweBenchFormat",
        settings=_SETTINGS,
        summary="JSONL rows of SWE-bench: a repository at a commit, an issue, tests",
    )


@hookimpl
def agentrl_register_graders(register: Register) -> None:
    """Offer ``swebench``."""
    register(
        "swebench",
        "agentrl_swebench.grader:SweBenchGrader",
        settings=_SETTINGS,
        extra="swebench",
        summary="The official eval script and log parser of SWE-bench decide, in a fresh sandbox",
    )
