"""The protocol ``linecount``: a task asks for a file, the reward says whether it has the right number of lines."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_task_formats(register: Register) -> None:
    """The reading half."""
    register(
        "linecount",
        "agentrl_example_grader.task_format:LineCountFormat",
        settings="agentrl_example_grader.settings:LineCountSettings",
        summary="Tasks that ask for a file with a number of lines",
    )


@hookimpl
def agentrl_register_graders(register: Register) -> None:
    """The judging half."""
    register(
        "linecount", "agentrl_example_grader.grader:LineCountGrader", summary="Counts the lines of the submitted file"
    )
