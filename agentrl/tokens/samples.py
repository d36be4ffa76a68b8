"""From a trajectory to what the trainer gets: chains, masks and weights.

Pure arithmetic over ids that are already there; advantages and packing belong to the trainer.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrl.types import Sample, Trajectory, Turn

Chain = tuple[Turn, ...]


def chains(trajectory: Trajectory) -> Iterator[Chain]:
    """The root-to-leaf paths, in the order in which their leaves were recorded."""
    by_id = {t.id: t for t in trajectory.turns}
    parents = {t.parent_id for t in trajectory.turns}
    for leaf in (t for t in trajectory.turns if t.id not in parents):
        path, turn = [leaf], leaf
        while turn.parent_id is not None:
            turn = by_id[turn.parent_id]
            path.append(turn)
        yield tuple(reversed(path))


def samples_from(
    trajectory: Trajectory, *, rollout_id: str, reward: float, max_tokens: int | None = None
) -> tuple[Sample, ...]:
    """The samples of one rollout: one for each chain that has something to train.

    Masks: a turn is trained in the first chain that holds it; in later chains its tokens are context with mask 0. Turns
    that are not ``trainable`` are context everywhere. A chain ends behind its last trained turn.

    Length: turns that do not fit into ``max_tokens`` as a whole are cut off together with all that follows
    (``truncated``). A sample whose last trained turn ended for ``length`` is ``truncated`` too.

    Weights: a sample weighs its trained tokens divided by those of the rollout, so every sampled token of a
    rollout counts the same and the weights sum to 1, whatever the number of chains.

    ``turn_ids`` are the trained turns, ``weight_versions`` the versions that sampled them, one for each.
    """
    cuts: list[tuple[Chain, frozenset[str], bool]] = []
    taken: set[str] = set()
    for chain in chains(trajectory):
        fitting = _fitting(chain, max_tokens)
        trained = frozenset(t.id for t in fitting if t.trainable and t.id not in taken)
        taken |= trained
        if trained:
            cuts.append((_up_to_last(fitting, trained), trained, len(fitting) < len(chain)))
    total = sum(len(t.generation.ids) for t in trajectory.turns if t.id in taken)
    return tuple(
        _sample(chain, trained, cut, rollout_id=rollout_id, index=i, reward=reward, total=total)
        for i, (chain, trained, cut) in enumerate(cuts)
    )


def _fitting(chain: Chain, max_tokens: int | None) -> Chain:
    """The longest beginning of a chain that fits. A turn ends behind what it sampled."""
    if max_tokens is None:
        return chain
    return tuple(t for t in chain if t.prompt_tokens + len(t.generation.ids) <= max_tokens)


def _up_to_last(chain: Chain, trained: frozenset[str]) -> Chain:
    last = max(i for i, t in enumerate(chain) if t.id in trained)
    return chain[: last + 1]


def _sample(
    chain: Chain, trained: frozenset[str], cut: bool, *, rollout_id: str, index: int, reward: float, total: int
) -> Sample:
    tokens: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for turn in chain:
        ids, mine = turn.generation.ids, turn.id in trained
        tokens += [*turn.new_ids, *ids]
        mask += [0] * len(turn.new_ids) + [int(mine)] * len(ids)
        logprobs += [0.0] * len(turn.new_ids) + (list(turn.generation.logprobs) if mine else [0.0] * len(ids))
    turns = [t for t in chain if t.id in trained]
    return Sample(
        rollout_id=rollout_id,
        index=index,
        tokens=tuple(tokens),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        loss_weight=sum(mask) / total,
        reward=reward,
        turn_ids=tuple(t.id for t in turns),
        weight_versions=tuple(t.generation.weight_version for t in turns),
        truncated=cut or turns[-1].generation.finish == "length",
    )
