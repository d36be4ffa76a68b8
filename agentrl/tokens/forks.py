"""Why a request did not continue the chain before it: the words, and the rules that choose one.

Nothing here decides where a request goes, only what the record says about it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from agentrl.types import Message

SYSTEM_CHANGED: Final = "system_changed"
"""The same conversation under another system prompt."""
TOOLS_CHANGED: Final = "tools_changed"
"""The same conversation with other tools."""
HISTORY_EDITED: Final = "history_edited"
"""The client took back a reply, or changed what was said before one."""
COMPACTION: Final = "compaction"
"""The client began again from a summary."""
SUBAGENT: Final = "subagent"
"""Another conversation of the same session."""
PARALLEL: Final = "parallel"
"""Asked from the same point while another request from there was still being answered."""
RESAMPLED: Final = "resampled"
"""The identical request again, after its reply was delivered."""
ABORTED: Final = "aborted"
"""The turn before it was cut off by the engine; nothing is appended to such a turn."""
TEMPLATE_NOT_PREFIX_STABLE: Final = "template_not_prefix_stable"
"""The conversation was extended, but the chat format has no way to render that extension."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What tells conversations apart: the tools, the system prompt before the first message, the first thing the user says."""

    tools: Hashable
    system: tuple[str, ...]
    opening: str

    @classmethod
    def of(cls, messages: Sequence[Message], tools: Hashable) -> Outline:
        """The outline of a request, without the noise that varies from request to request."""
        system = tuple(m.text for m in takewhile(lambda m: m.role == "system", messages))
        return cls(tools, system, next((m.text for m in messages if m.role == "user"), ""))


NO_OUTLINE: Final = Outline("", (), "")


def reason_for_root(new: Outline, before: Outline | None) -> str:
    """Why a request starts another root. ``before``: the last recorded turn of its lane, None for a lane's first."""
    if before is None:
        return SUBAGENT
    same_head = (new.tools, new.system) == (before.tools, before.system)
    if new.opening != before.opening:
        return COMPACTION if same_head else SUBAGENT
    if new.system != before.system:
        return SYSTEM_CHANGED
    return TOOLS_CHANGED if new.tools != before.tools else HISTORY_EDITED
