"""The words that the model is given. One user message opens the conversation; there is no system message and no tool."""

from __future__ import annotations

from typing import Literal

Format = Literal["json", "xml"]

_INTRO = (
    "You are an AI assistant that solves tasks in a Linux terminal. You are given a task and what the terminal shows. "
    "You answer with batches of keystrokes, which are typed into the terminal for you."
)

_JSON = """Answer with one JSON object of this structure:

{
  "analysis": "What does the terminal show? What is done, what is still to do?",
  "plan": "What will you run next, and what do you expect of it?",
  "commands": [
    {"keystrokes": "ls -la\\n", "duration": 0.1},
    {"keystrokes": "cd project\\n", "duration": 0.1}
  ],
  "task_complete": false
}

Required: "analysis" (string), "plan" (string), "commands" (array, may be empty to just wait).
Optional: "task_complete" (boolean, default false).
Each command has "keystrokes" (string, required) and "duration" (seconds to wait after it, default 1.0).

Keystrokes are typed exactly as written. End a command with a newline (\\n) or it will not run. For special keys write
tmux names: C-c for Ctrl+C, C-d for Ctrl+D.
The JSON must be valid: escape quotes and special characters. Text around the object is tolerated, with a warning."""

_XML = """Answer with one response of this structure:

<response>
<analysis>
What does the terminal show? What is done, what is still to do?
</analysis>
<plan>
What will you run next, and what do you expect of it?
</plan>
<commands>
<keystrokes duration="0.1">ls -la
</keystrokes>
<keystrokes duration="0.1">cd project
</keystrokes>
</commands>
<task_complete>false</task_complete>
</response>

Required: <analysis>, <plan>, <commands> (may be empty to just wait).
Optional: <task_complete>true</task_complete>; anything else, or no such tag, means not complete.
The attribute "duration" is how many seconds to wait after the keystrokes (default 1.0).

Keystrokes are typed exactly as written: write < > & and quotes as they are, never as entities. End a command with a
line break or it will not run. For special keys write tmux names, alone in their tag: <keystrokes>C-c</keystrokes>,
<keystrokes>C-d</keystrokes>.
Write no text around the response and no other tags in it."""

_WAITING = (
    "Wait 0.1 seconds for immediate commands (cd, ls, echo, cat), 1.0 for most others, longer for slow ones (make, a long "
    "script). Prefer short waits: you can always wait again with empty keystrokes, and a wait is never longer than 60 seconds."
)

_AGAIN = {"json": '"task_complete": true in your JSON response', "xml": "<task_complete>true</task_complete>"}


def opening(format: Format, *, problem: str, workdir: str, terminal: str) -> str:
    """The first user message."""
    structure = _JSON if format == "json" else _XML
    return (
        f"{_INTRO}\n\n{structure}\n\n{_WAITING}\n\nTask Description:\n{problem.strip()}\n\n"
        f"The repository is in {workdir}, where the terminal starts.\n\nCurrent terminal state:\n{terminal}\n"
    )


def confirmation(format: Format, terminal: str) -> str:
    """What answers the first claim to be done."""
    return (
        f"Current terminal state:\n{terminal}\n\nAre you sure you want to mark the task as complete? This will trigger your "
        f"solution to be graded and you won't be able to make any further corrections. If so, include {_AGAIN[format]} again."
    )


def correction(format: Format, feedback: str) -> str:
    """What answers a reply that could not be read."""
    kind = "JSON response" if format == "json" else "response"
    return f"Previous response had parsing errors:\n{feedback}\n\nPlease fix these issues and provide a proper {kind}."


def observation(terminal: str, feedback: str) -> str:
    """What answers commands: the terminal, behind the warnings."""
    return f"Previous response had warnings:\n{feedback}\n\n{terminal}" if feedback else terminal


def too_long(warnings: str) -> str:
    """What answers a reply that was cut by the length limit: nothing of it was executed."""
    told = (
        "ERROR!! NONE of the actions you just requested were performed because you exceeded the maximum output length. Your "
        "outputs must be less than the maximum output length. Re-issue this request, breaking it into chunks each of which "
        "is less than the maximum output length."
    )
    return f"{told}\n\nParser warnings from your truncated response:\n{warnings}" if warnings else told
