"""A repair task of the ``scaleswe`` protocol that takes milliseconds, and what a scripted model says to solve it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tiny_model import Speller

WORKDIR = "/testbed"
CHECK = "grep -qx fixed state.txt"
ASSISTANT = "<|im_start|>assistant\n"


def repair_row(name: str = "repair", *, level: str = "level-1", check: str = CHECK) -> dict[str, Any]:
    """A row: ``state.txt`` says ``broken``, and ``check`` wants it to say ``fixed``."""
    return {
        "prompt": "",
        "label": name,
        "metadata": {
            "instance_id": name,
            "workdir": WORKDIR,
            "level": level,
            "problem_statement": f"Write fixed into state.txt. This is {name}.",
            "pre_commands": ["echo broken > state.txt"],
            "eval_cmd": check,
        },
    }


def bash(command: str) -> str:
    """A reply with one command."""
    return f"```bash\n{command}\n```"


FIX = bash("echo fixed > state.txt")
BREAK = bash("echo worse > state.txt")
SUBMIT = bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


def saying(speller: Speller, replies: Sequence[str]) -> Callable[[list[int], int], list[int]]:
    """A script for :class:`agentrl.testing.scripted_engine.ScriptedEngine`: the n-th reply of every conversation is the
    n-th of ``replies``, and the last one from then on."""

    def script(prompt: list[int], _number: int) -> list[int]:
        turn = speller.text(prompt).count(ASSISTANT) - 1
        return speller.ids(replies[min(turn, len(replies) - 1)])

    return script
