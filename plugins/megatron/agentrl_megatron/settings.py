"""Settings of the Megatron trainer; cheap to import."""

from __future__ import annotations

from pydantic import Field

from agentrl.api import PluginSettings


class MegatronSettings(PluginSettings):
    """What a user may choose about the update and about the processes that compute it."""

    tp: int = Field(default=1, ge=1, validation_alias="AGENTRL_TP", description="Tensor-parallel size of the trainer.")
    pp: int = Field(
        default=1, ge=1, validation_alias="AGENTRL_PP", description="Pipeline-parallel size of the trainer."
    )
    dp: int = Field(default=1, ge=1, validation_alias="AGENTRL_DP", description="Data-parallel size of the trainer.")
    threads: int = Field(
        default=0,
        ge=0,
        validation_alias="AGENTRL_TRAINER_THREADS",
        description="CPU threads of one trainer rank; 0 shares the machine's cores among the ranks.",
    )
    micro_batch_tokens: int = Field(
        default=4096,
        ge=1,
        validation_alias="AGENTRL_MICRO_BATCH_TOKENS",
        description="Tokens, padding included, of one micro-batch; a longer sample has a micro-batch of its own.",
    )
    share_prefixes: bool = Field(
        default=True,
        validation_alias="AGENTRL_SHARE_PREFIXES",
        description="Compute what samples have in common at their beginning, such as a group's prompt, only once.",
    )
    epochs: int = Field(
        default=1,
        ge=1,
        validation_alias="AGENTRL_TRAINER_EPOCHS",
        description="Passes over an iteration's samples, one optimizer step each.",
    )
    learning_rate: float = Field(
        default=1e-6, gt=0, validation_alias="AGENTRL_LEARNING_RATE", description="Learning rate of Adam, constant."
    )
    adam_beta1: float = Field(
        default=0.9, ge=0, lt=1, validation_alias="AGENTRL_ADAM_BETA1", description="Adam's first beta."
    )
    adam_beta2: float = Field(
        default=0.95, ge=0, lt=1, validation_alias="AGENTRL_ADAM_BETA2", description="Adam's second beta."
    )
    weight_decay: float = Field(
        default=0.0, ge=0, validation_alias="AGENTRL_WEIGHT_DECAY", description="Decoupled weight decay."
    )
    clip_grad: float = Field(
        default=1.0, gt=0, validation_alias="AGENTRL_CLIP_GRAD", description="Largest norm of the gradient."
    )
    clip_low: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        validation_alias="AGENTRL_CLIP_LOW",
        description="A policy ratio is clipped below 1 minus this.",
    )
    clip_high: float = Field(
        default=0.28,
        gt=0,
        validation_alias="AGENTRL_CLIP_HIGH",
        description="A policy ratio is clipped above 1 plus this.",
    )
    tis_cap: float = Field(
        default=2.0,
        ge=1,
        validation_alias="AGENTRL_TIS_CAP",
        description="Largest importance weight that corrects for an engine whose probabilities differ from the trainer's.",
    )
    advantage_std: bool = Field(
        default=True,
        validation_alias="AGENTRL_ADVANTAGE_STD",
        description="Whether advantages are divided by the standard deviation of their group's rewards.",
    )
    checkpoints_kept: int = Field(
        default=2, ge=1, validation_alias="AGENTRL_CHECKPOINTS_KEPT", description="How many checkpoints stay on disk."
    )
    host: str = Field(
        default="127.0.0.1",
        validation_alias="AGENTRL_TRAINER_HOST",
        description="Address of this machine under which engines reach the first trainer rank to receive weights.",
    )
    engine_ranks: int = Field(
        default=1,
        ge=1,
        validation_alias="AGENTRL_ENGINE_RANKS",
        description="Ranks of the engine that receive weights: its tensor-parallel size times its replicas.",
    )
    timeout_sec: float = Field(
        default=600.0,
        gt=0,
        validation_alias="AGENTRL_TRAINER_TIMEOUT_SEC",
        description="Seconds after which a collective of the ranks, or one with the engine, counts as dead.",
    )
