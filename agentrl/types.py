"""The data that the parts hand to each other: frozen values, no behaviour beyond small derivations.

Not here: interfaces (one module each beside this one), errors (:mod:`agentrl.errors`), the closed vocabulary of how
a rollout ends (:mod:`agentrl.outcomes`).

Units: times are seconds and end in ``_sec``; sizes say their unit; token ids are plain ``int``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agentrl.outcomes import AgentEnd, ExitStatus, Outcome

# ---------------------------------------------------------------------------------------------- conversation

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of the model. ``signature`` is whatever a client echoed; it carries no meaning here."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. ``id`` is minted by the gateway and finds the turn again when echoed."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered; several blocks of a result are joined into one text."""

    call_id: str
    text: str
    is_error: bool = False


Block = Text | Thinking | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One message in canonical form: every dialect reads into this, every codec renders from it.

    ``ToolCall`` appears in assistant messages only, ``ToolResult`` in ``tool`` messages only (dialects that carry
    results inside user messages are split into ``tool`` and ``user`` messages, in order).
    """

    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """All visible text (of tool results too), joined by newlines."""
        return "\n".join(b.text for b in self.blocks if isinstance(b, Text | ToolResult))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool offered to the model; ``parameters`` is a JSON schema.

    ``freeform``: the client's tool takes bare text. The model sees a function with the one string ``input``; the dialect
    translates its calls back.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    freeform: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request in canonical form. Sampling parameters of the client are not part of it: they belong to the run.

    ``max_tokens`` is the client's cap for this turn (``None``: no wish). ``stop`` are strings that end the reply. ``client``:
    the program that sent it and its run, as it says of itself; dialects leave it empty.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    stop: tuple[str, ...] = ()
    client: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn: ``prompt`` as sent to the engine, ``completion`` as sampled."""

    prompt: int
    completion: int


Finish = Literal["stop", "tool_calls", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What one turn answers. ``message`` has at least one block; ``turn_id`` names the recorded turn, ``tools`` are those that
    the request offered."""

    message: Message
    finish: Finish
    usage: Usage
    turn_id: str
    model: str = ""
    tools: tuple[Tool, ...] = ()


# ---------------------------------------------------------------------------------------------------- engine


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the engine samples. ``top_k`` -1: off. ``seed`` None: the engine's own stream of random numbers."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What the engine sampled: ``len(ids) == len(logprobs)``, each the log-probability under the sampled distribution.

    ``finish``: ``stop`` (a stop id, included in ``ids`` when the engine returned it), ``length`` or ``abort``.
    ``dispatch_version`` and ``weight_version`` are the policy's versions when the request left and when it ended.
    """

    request_id: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length", "abort"]
    weight_version: str = ""
    dispatch_version: str = ""


# ----------------------------------------------------------------------------------------------------- turns


@dataclass(frozen=True, slots=True)
class Turn:
    """One recorded model call, a node of the trajectory.

    The full prompt is: the prompt and ``generation.ids`` of the parent, then ``new_ids``. A turn without parent has
    its whole prompt in ``new_ids``. ``fork_reason`` says why this turn did not continue the chain before it (empty
    for the first turn and for plain continuations). ``trainable`` is False for turns kept out of training
    (``excluded`` says why: ``abort``, ``foreign_client``, ...).
    """

    id: str
    parent_id: str | None
    new_ids: tuple[int, ...]
    generation: Generation
    prompt_tokens: int
    fork_reason: str = ""
    trainable: bool = True
    excluded: str = ""
    lane: str = ""
    started_at: float = 0.0
    duration_sec: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineCall:
    """The raw ``/generate`` exchange as it went over the wire: the evidence that ``agentrl verify`` replays."""

    request_id: str
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    weight_version: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The tree of a rollout's turns, parents before children, with the raw engine calls and counters.

    ``counters``: control tokens neutralised, malformed tool calls, retries recognised, ... (absent = not measured).
    """

    turns: tuple[Turn, ...]
    calls: tuple[EngineCall, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the trainer gets: one token-contiguous chain part.

    ``tokens``, ``loss_mask`` and ``logprobs`` have one length T. ``loss_mask[i]`` is 1 only where the engine sampled
    ``tokens[i]`` and no other sample of the rollout trains it; ``logprobs[i]`` is what the engine returned for it and 0.0
    elsewhere. ``loss_weight``: the weights of one rollout's samples sum to 1. ``turn_ids``: the turns it trains.
    """

    rollout_id: str
    index: int
    tokens: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_weight: float
    reward: float
    turn_ids: tuple[str, ...] = ()
    weight_versions: tuple[str, ...] = ()
    truncated: bool = False


# --------------------------------------------------------------------------------------------------- sandbox


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits of one sandbox; ``None`` leaves the backend's default."""

    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Something baked into an image once per digest: files are written (mode 0755), then ``commands`` run as root.

    ``files``: path → bytes. ``fetched``: path → a blocking function that gets a file onto the host and returns where it is, for
    what is big or has to be downloaded. It is called only when the layer is baked, so ``name`` must tell versions apart.
    :func:`agentrl.tools.upload.write_layer` writes both into a sandbox.
    """

    name: str
    commands: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    fetched: Mapping[str, Callable[[], Path]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Hex SHA-256 over name, commands, files and the paths of what is fetched."""
        words = [self.name, list(self.commands), *([sorted(self.fetched)] if self.fetched else [])]
        h = hashlib.sha256(json.dumps(words).encode())
        for path in sorted(self.files):
            h.update(path.encode() + b"\0" + hashlib.sha256(self.files[path]).digest())
        return h.hexdigest()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox must be. ``image`` None: the backend's default. ``reach``: TCP ports on the host's loopback
    (the gateway) that the sandbox must be able to reach; nothing else of the host is reachable unless ``network``.
    ``layers`` are baked onto the image by the lease: a backend's ``create`` never sees them."""

    image: str | None = None
    resources: Resources = Resources()
    env: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[int, ...] = ()
    network: bool = False
    layers: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. ``exit_code`` is real: 0..255, 128+n for signal n. Output is capped with the tail kept
    (``truncated``). ``timed_out``: the process tree was killed, output is what there was."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do. ``reach``: how its machines reach the host."""

    users: bool
    network_policy: bool
    resources: frozenset[str]
    snapshot: bool
    reach: frozenset[Literal["loopback", "bridge", "public", "tunnel"]]


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A machine as its provider lists it. ``created_at``: Unix seconds."""

    id: str
    labels: Mapping[str, str]
    created_at: float


# ----------------------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. ``problem`` is what the agent is asked, in words. ``level`` groups tasks in the metrics. ``layers``:
    what the task adds to its image, and ``env`` to the environment of its sandboxes.

    ``metadata`` belongs to the task format and grader that read it; nobody else looks inside.
    """

    id: str
    protocol: str
    problem: str
    workdir: str
    image: str | None = None
    resources: Resources = Resources()
    level: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> SandboxSpec:
        """The sandbox that the task asks for."""
        return SandboxSpec(image=self.image, resources=self.resources, env=self.env, layers=self.layers)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the host learnt while preparing a sandbox, before the agent started (``base_commit``: full hex id or empty)."""

    base_commit: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """What is graded: the patch against ``base_commit``, byte for byte, and named artefacts."""

    base_commit: str
    patch: bytes
    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict: ``reward`` is finite, in [0, 1]. ``restored``: files put back from the task before the tests ran.

    ``details`` is JSON for people, but for two keys: ``partial``, the share in [0, 1] of what was asked for that works (0 when
    something broke), and ``broken``, the tests that passed before the task and fail now.
    """

    reward: float
    exit_status: ExitStatus
    details: Mapping[str, Any] = field(default_factory=dict)
    restored: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------- rollout


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt, boot to grade, as it is journalled.

    ``reward`` is None exactly when ``outcome`` is ``aborted`` (no grade, no reward). ``samples`` is empty then.
    ``seconds``: phase → duration; phases that did not happen are absent. ``details``: what the harness reported.
    """

    id: str
    group_id: str
    task_id: str
    level: str
    iteration: int
    outcome: Outcome
    exit_status: ExitStatus
    agent_end: AgentEnd | None
    reward: float | None
    grade: Grade | None
    samples: tuple[Sample, ...]
    trajectory: Trajectory
    seconds: Mapping[str, float]
    message: str = ""
    attempt: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task in one iteration. Aborted ones stay in it, without reward."""

    id: str
    task_id: str
    rollouts: tuple[Rollout, ...]

    @property
    def graded(self) -> Sequence[Rollout]:
        """The rollouts that have a reward."""
        return [r for r in self.rollouts if r.reward is not None]
