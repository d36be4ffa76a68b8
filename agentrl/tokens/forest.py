"""The tree of a rollout's turns: where a request continues, what is new in it, and the exact ids of every turn.

It knows messages and ids, no chat template (:mod:`agentrl.tokens.codec`) and no wire format. One forest belongs to one
rollout and is used from one thread.

Inside: a trie over the steps of conversations (:mod:`agentrl.tokens.steps`). Its states are numbers, its edges a dictionary, a turn
owns the state behind its reply. A request is walked once, one look-up a step; each turn stores its own new messages
and ids and no snapshot, so time spent on tokens and memory grow with what is new.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby

from agentrl.errors import EngineError
from agentrl.tokens import forks
from agentrl.tokens.ids import TokenIds, joined
from agentrl.tokens.steps import Step, renamed, reply_keys, steps, tools_key, without_noise
from agentrl.types import Block, ChatRequest, Generation, Message, Tool, ToolCall, Turn

_ORIGIN = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request belongs. ``parent_id``: the turn whose ids are its prefix (None: a new root).

    ``new``: the messages to render behind the parent (all messages without one). ``history``: the canonical stored
    messages up to and including the parent's reply. ``fork_reason``: why it is no plain continuation, or empty.
    ``duplicate_of``: the pending or undelivered turn of which this request is a retry. ``outline``: of the request.
    """

    parent_id: str | None
    new: tuple[Message, ...]
    history: tuple[Message, ...]
    fork_reason: str
    duplicate_of: str | None
    lane: str = ""
    outline: forks.Outline = field(default=forks.NO_OUTLINE, compare=False, repr=False)

    def as_root(self, reason: str) -> Placement:
        """The same request as a new root, for a codec that could not extend. A reason found earlier is kept."""
        return replace(
            self, parent_id=None, new=self.history + self.new, history=(), fork_reason=self.fork_reason or reason
        )


@dataclass(slots=True, eq=False)
class _Node:
    """A turn: pending until ``turn`` is there."""

    id: str
    parent_id: str | None
    new: tuple[Message, ...]
    fork_reason: str
    lane: str
    outline: forks.Outline
    asked_at: int
    answered_at: int = -1
    reply: Message | None = None
    turn: Turn | None = None
    ids: tuple[TokenIds, ...] = ()
    delivered: bool = False

    @property
    def aborted(self) -> bool:
        return self.turn is not None and self.turn.generation.finish == "abort"

    @property
    def retriable(self) -> bool:
        """Whether the same request again only repeats this one."""
        return self.turn is None or not (self.delivered or self.aborted)


@dataclass(slots=True)
class _Walk:
    """How far a request is known: the deepest turn to continue, the messages up to its reply, the echo of that reply,
    the state behind the last step (-1: left the trie), and whether an aborted reply was passed on the way."""

    parent: _Node | None = None
    known: int = 0
    echo: tuple[Block, ...] = ()
    state: int = _ORIGIN
    after_abort: bool = False


class Forest:
    """All turns of one rollout."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._recorded: list[_Node] = []
        self._edges: dict[tuple[int, Hashable], int] = {}
        self._owners: dict[int, _Node] = {}
        self._asked: dict[int, list[_Node]] = {}
        self._children: dict[str | None, list[_Node]] = {}
        self._turn_of_call: dict[str, str] = {}
        self._last_in_lane: dict[str, _Node] = {}
        self._states = _ORIGIN
        self._tools: tuple[Sequence[Tool], str] = ((), tools_key(()))
        # Numbered behind one random part: the system's random numbers cost more than all of :meth:`begin`.
        self._name, self._numbers = secrets.token_hex(6), count()

    def place(self, request: ChatRequest, *, lane: str = "") -> Placement:
        """Find the deepest turn that the request continues. ``lane``: the client's own name of a chain (agent id), or
        empty. Changes nothing."""
        messages, tools = without_noise(request.messages), self._key_of(request.tools)
        walk = self._walk(messages, tools, lane)
        parent, new = walk.parent, self._restored(messages[walk.known :])
        if parent is not None and parent.reply is not None:
            new = renamed(new, walk.echo, parent.reply)
        asked = [n for n in self._asked.get(walk.state, ()) if n.lane == lane]
        outline = forks.Outline.of(messages, tools)
        return Placement(
            parent_id=parent.id if parent else None,
            new=new,
            history=self._history(parent),
            fork_reason=self._reason(walk, outline, lane),
            duplicate_of=next((n.id for n in reversed(asked) if n.retriable), None),
            lane=lane,
            outline=outline,
        )

    def begin(self, placement: Placement) -> str:
        """Mint a turn id and mark the turn pending, so that a retry of the same request is recognised."""
        lane, outline = placement.lane, placement.outline
        parent = self._nodes[placement.parent_id] if placement.parent_id else None
        state = parent.answered_at if parent else self._goto(_ORIGIN, (("tools", outline.tools),))
        for step in steps(placement.new, self._turn_of_call, lane):
            state = self._goto(state, step.keys)
        node = _Node(
            id=f"{self._name}{next(self._numbers):04x}",
            parent_id=placement.parent_id,
            new=placement.new,
            fork_reason=placement.fork_reason,
            lane=lane,
            outline=outline,
            asked_at=state,
        )
        self._nodes[node.id] = node
        self._asked.setdefault(state, []).append(node)
        self._children.setdefault(node.parent_id, []).append(node)
        return node.id

    def commit(
        self,
        turn_id: str,
        *,
        new_ids: Sequence[int],
        generation: Generation,
        reply: Message,
        started_at: float,
        duration_sec: float,
        trainable: bool = True,
        excluded: str = "",
    ) -> Turn:
        """Record what was sampled. ``new_ids``: what was appended behind the parent (a root's whole prompt).

        An aborted generation is recorded but never trained, and nothing is ever appended to it. Raises: EngineError
        when ids and logprobs do not match, or nothing was sampled.
        """
        node = self._nodes[turn_id]
        _check(generation)
        if generation.finish == "abort":
            trainable, excluded = False, excluded or "abort"
        before, new = self._turn(node.parent_id), TokenIds.of(new_ids)
        node.reply = reply
        node.turn = Turn(
            id=turn_id,
            parent_id=node.parent_id,
            new_ids=new,
            generation=generation,
            prompt_tokens=(before.prompt_tokens + len(before.generation.ids) if before else 0) + len(new),
            fork_reason=node.fork_reason,
            trainable=trainable,
            excluded=excluded,
            lane=node.lane,
            started_at=started_at,
            duration_sec=duration_sec,
        )
        node.ids = (new, TokenIds.of(generation.ids))
        self._recorded.append(node)
        self._last_in_lane[node.lane] = node
        self._answer(node, reply)
        return node.turn

    def drop(self, turn_id: str) -> None:
        """Forget a pending turn: the client left, or the engine failed."""
        node = self._nodes.pop(turn_id)
        self._asked[node.asked_at].remove(node)
        self._children[node.parent_id].remove(node)

    def delivered(self, turn_id: str) -> None:
        """The client has the reply: the same request once more is a new turn from now on."""
        self._nodes[turn_id].delivered = True

    def prompt(self, turn_id: str) -> TokenIds:
        """All ids up to and including what that turn sampled: the prefix of whatever continues it."""
        return joined(part for node in self._path(self._nodes[turn_id]) for part in node.ids)

    def last_id(self, turn_id: str) -> int:
        """The last of :meth:`prompt`."""
        turn = self._nodes[turn_id].turn
        if turn is None:
            raise KeyError(turn_id)
        return turn.generation.ids[-1]

    def turns(self) -> tuple[Turn, ...]:
        """The recorded turns, parents before children."""
        return tuple(n.turn for n in self._recorded if n.turn is not None)

    def stored_reply(self, turn_id: str) -> Message:
        """The reply as it was parsed from the sampled ids. Raises: KeyError for a turn that is not recorded."""
        reply = self._nodes[turn_id].reply
        if reply is None:
            raise KeyError(turn_id)
        return reply

    def _walk(self, messages: Sequence[Message], tools: str, lane: str) -> _Walk:
        walk = _Walk(state=self._edges.get((_ORIGIN, ("tools", tools)), -1))
        for step in steps(messages, self._turn_of_call, lane):
            walk.state = self._next(walk.state, step.keys)
            if walk.state < 0:
                break
            self._pass(walk, step)
        return walk

    def _pass(self, walk: _Walk, step: Step) -> None:
        """Take over what the owner of the state just reached means for the walk."""
        owner = self._owners.get(walk.state)
        if owner is None:
            return
        walk.after_abort = owner.aborted
        if not walk.after_abort:
            walk.parent, walk.known, walk.echo = owner, step.end, step.said

    def _next(self, state: int, keys: Sequence[Hashable]) -> int:
        for key in keys:
            found = self._edges.get((state, key))
            if found is not None:
                return found
        return -1

    def _goto(self, state: int, keys: Sequence[Hashable]) -> int:
        """The state behind a step, made if need be."""
        found = self._next(state, keys)
        return found if found >= 0 else self._open(state, keys)

    def _open(self, state: int, keys: Sequence[Hashable]) -> int:
        """A new state behind ``state``; keys that led elsewhere lead here from now on."""
        self._states += 1
        self._edges.update({(state, key): self._states for key in keys})
        return self._states

    def _answer(self, node: _Node, reply: Message) -> None:
        """Make the reply findable: by the ids it minted, and by its words at this place."""
        node.answered_at = self._open(node.asked_at, reply_keys(node.id, node.lane, reply))
        self._owners[node.answered_at] = node
        self._turn_of_call.update({b.id: node.id for b in reply.blocks if isinstance(b, ToolCall)})

    def _turn(self, turn_id: str | None) -> Turn | None:
        return self._nodes[turn_id].turn if turn_id is not None else None

    def _path(self, node: _Node | None) -> list[_Node]:
        """The turns from the root to ``node``."""
        path: list[_Node] = []
        while node is not None:
            path.append(node)
            node = self._nodes[node.parent_id] if node.parent_id is not None else None
        return path[::-1]

    def _history(self, node: _Node | None) -> tuple[Message, ...]:
        return tuple(m for n in self._path(node) for m in (*n.new, *((n.reply,) if n.reply else ())))

    def _restored(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """``messages`` with echoes of our replies, known by their call ids, put back as they were sampled."""
        restored: list[Message] = []
        for said, run in groupby(messages, key=lambda m: m.role == "assistant"):
            group = tuple(run)
            calls = (b.id for m in group for b in m.blocks if isinstance(b, ToolCall)) if said else ()
            turn = next((self._turn_of_call[i] for i in calls if i in self._turn_of_call), None)
            restored += group if turn is None else (self.stored_reply(turn),)
        return tuple(restored)

    def _key_of(self, tools: Sequence[Tool]) -> str:
        """The identity of ``tools``, worked out anew only when they differ from those of the last request."""
        if tools != self._tools[0]:
            self._tools = tools, tools_key(tools)
        return self._tools[1]

    def _reason(self, walk: _Walk, outline: forks.Outline, lane: str) -> str:
        siblings = self._children.get(walk.parent.id if walk.parent else None, ())
        if not siblings:
            return ""
        if walk.after_abort:
            return forks.ABORTED
        if any(n.asked_at == walk.state and n.lane == lane for n in siblings):
            return forks.RESAMPLED
        if walk.parent is None and self._recorded:
            before = self._last_in_lane.get(lane)
            return forks.reason_for_root(outline, before.outline if before else None)
        if lane not in self._last_in_lane and self._recorded:
            return forks.SUBAGENT
        return forks.PARALLEL if any(n.turn is None for n in siblings) else forks.HISTORY_EDITED


def _check(generation: Generation) -> None:
    ids, logprobs = len(generation.ids), len(generation.logprobs)
    if ids != logprobs:
        raise EngineError(f"the engine returned {ids} ids and {logprobs} logprobs; start it with logprobs enabled")
    if not ids and generation.finish != "abort":
        raise EngineError("the engine sampled nothing: check its stop tokens and max_new_tokens")
