"""The Megatron trainer: groups in, a policy-gradient step on Megatron-core ranks, new weights out to the engine."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_trainers(register: Register) -> None:
    """Offer ``megatron``."""
    register(
        "megatron",
        "agentrl_megatron.trainer:MegatronTrainer",
        settings="agentrl_megatron.settings:MegatronSettings",
        extra="megatron",
        summary="GRPO on Megatron-core, on CPUs and GPUs",
    )
