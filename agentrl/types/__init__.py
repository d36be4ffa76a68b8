"""The data that the parts hand to each other: frozen values, no behaviour beyond small derivations.

Not here: interfaces (one module each beside this package), errors (:mod:`agentrl.errors`), the closed vocabulary of how
a rollout ends (:mod:`agentrl.outcomes`).

Units: times are seconds and end in ``_sec``; sizes say their unit; token ids are plain ``int``.
"""

from __future__ import annotations

from agentrl.types.conversation import (
    Block,
    ChatRequest,
    Finish,
    Message,
    Reply,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from agentrl.types.machines import Capabilities, ExecResult, Layer, Resources, SandboxInfo, SandboxSpec
from agentrl.types.tasks import Grade, Group, Prepared, Rollout, Submission, Task
from agentrl.types.turns import EngineCall, Generation, Sample, SamplingParams, Trajectory, Turn

__all__ = [
    "Block",
    "Capabilities",
    "ChatRequest",
    "EngineCall",
    "ExecResult",
    "Finish",
    "Generation",
    "Grade",
    "Group",
    "Layer",
    "Message",
    "Prepared",
    "Reply",
    "Resources",
    "Role",
    "Rollout",
    "Sample",
    "SamplingParams",
    "SandboxInfo",
    "SandboxSpec",
    "Submission",
    "Task",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Trajectory",
    "Turn",
    "Usage",
]
