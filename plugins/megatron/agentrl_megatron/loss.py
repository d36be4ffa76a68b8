"""The policy-gradient loss on per-token logprobs. Pure torch: no model, no Megatron, no batching."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossLimits:
    """``clip_low`` and ``clip_high`` bound the ratio to [1 - low, 1 + high]; ``tis_cap`` bounds the importance weight."""

    clip_low: float
    clip_high: float
    tis_cap: float


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """``loss`` is a scalar with gradient; ``clipped`` and ``capped`` count trained tokens where a limit took effect."""

    loss: Tensor
    clipped: Tensor
    capped: Tensor


def policy_loss(
    logprobs: Tensor, old: Tensor, behaviour: Tensor, advantages: Tensor, weights: Tensor, limits: LossLimits
) -> PolicyLoss:
    """Token-level policy gradient with clip-higher and truncated importance weights::

        loss = - sum_t  w_t * c_t * min(r_t * A, clip(r_t, 1 - low, 1 + high) * A)
        r_t  = pi(t) / pi_old(t)                 the policy in training against the policy before this iteration's first step
        c_t  = min(pi_old(t) / mu(t), cap)       no gradient; mu is what the engine sampled from

    ``pi_old`` is the trainer's own computation, ``mu`` the engine's logprobs of the rollout. When both agree (the same
    weights, the same arithmetic), c = 1; in the first step of an iteration r = 1, and the gradient is that of
    ``- w * A * log pi``. What c corrects is the mismatch between the engine's and the trainer's arithmetic; the cap keeps
    its variance bounded.

    All of one shape. ``weights`` over a whole batch sum to 1 (each rollout the same), so that micro-batches add up and
    need no further division; a weight of 0 takes its token out of everything.
    """
    ratio = torch.exp(logprobs - old)
    clipped = ratio.clamp(1 - limits.clip_low, 1 + limits.clip_high)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    importance = torch.exp(old - behaviour)
    correction = importance.clamp(max=limits.tis_cap).detach()
    trained = weights > 0
    return PolicyLoss(
        loss=-(weights * correction * gain).sum(),
        clipped=((clipped * advantages < ratio * advantages) & trained).sum(),
        capped=((importance > limits.tis_cap) & trained).sum(),
    )
