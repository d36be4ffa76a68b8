"""The ``harbor`` protocol: task directories in the format of Harbor and Terminal-Bench."""

from __future__ import annotations

from agentrl.api import Register, hookimpl

_SETTINGS = "agentrl_harbor.settings:HarborSettings"


@hookimpl
def agentrl_register_task_formats(register: Register) -> None:
    """Offer ``harbor``."""
    register(
        "harbor",
        "agentrl_harbor.tasks:HarborFormat",
        settings=_SETTINGS,
        summary="Task directories: task.toml, instruction.md, environment/, tests/, solution/",
    )


@hookimpl
def agentrl_register_graders(register: Register) -> None:
    """Offer ``harbor``."""
    register(
        "harbor",
        "agentrl_harbor.grader:HarborGrader",
        settings=_SETTINGS,
        summary="A task's tests/test.sh writes the reward, in a fresh sandbox that received the agent's files",
    )
