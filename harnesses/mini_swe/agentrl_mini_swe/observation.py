"""How the end of a command looks to the model, and whether it was the submission."""

from __future__ import annotations

from agentrl.api import ExecResult

SUBMIT_MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Printed as the first line of a command's output, it ends the work."""


def is_submission(output: str) -> bool:
    """Whether ``output`` starts with the marker, alone on its line."""
    first_line, _, _ = output.lstrip().partition("\n")
    return first_line.strip() == SUBMIT_MARKER


def output_text(result: ExecResult) -> str:
    """Everything that the command printed, as text; bytes that are not UTF-8 are replaced."""
    return (result.stdout + result.stderr).decode("utf-8", "replace")


def describe(result: ExecResult, *, timeout_sec: float, max_chars: int) -> str:
    """The user message that answers a command: how it ended, then what it printed."""
    ended = f"timed out after {timeout_sec:g} s and was killed" if result.timed_out else f"exit code {result.exit_code}"
    output = shorten(output_text(result).strip("\n"), max_chars)
    return f"{ended}\n{output or '(no output)'}"


def shorten(text: str, max_chars: int) -> str:
    """``text`` with its middle replaced by a count when it is longer than ``max_chars``."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    tail = max_chars - head
    return f"{text[:head]}\n[{len(text) - max_chars} characters left out]\n{text[-tail:]}"
