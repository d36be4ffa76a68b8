"""The words that the model is given: short, because a small model pays for each of them."""

from __future__ import annotations

from agentrl_mini_swe.observation import SUBMIT_MARKER

Messages = list[dict[str, str]]
"""A conversation in the shape of the Chat Completions API."""

_SYSTEM = (
    "You repair the git repository in {workdir} with shell commands. Answer with one ```bash block. "
    "When the repair is done, run: echo " + SUBMIT_MARKER
)

# Three shapes of command: with only one of them a small model forces every issue into that shape.
_WORKED_EXAMPLES = (
    ("Make start.sh executable.", "chmod +x start.sh"),
    ("Rename old.txt to new.txt.", "mv old.txt new.txt"),
    ("Delete the file notes.bak.", "rm notes.bak"),
)


def opening(*, problem: str, workdir: str, demonstration: bool) -> Messages:
    """The conversation before the first reply; ``demonstration`` puts worked examples before the task."""
    messages = [{"role": "system", "content": _SYSTEM.format(workdir=workdir)}]
    for example, command in _WORKED_EXAMPLES if demonstration else ():
        messages += [user(example), assistant(_block(command))]
    return [*messages, user(problem.strip())]


def correction(problem: str) -> str:
    """The user message that answers a reply without a single command."""
    return f"{problem} Answer with one block:\n{_block('<command>')}"


def user(content: str) -> dict[str, str]:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    """An assistant message; ``content`` is what the model wrote, unaltered."""
    return {"role": "assistant", "content": content}


def _block(command: str) -> str:
    return f"```bash\n{command}\n```"
