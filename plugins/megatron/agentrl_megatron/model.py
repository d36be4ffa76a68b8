"""A rank's part of the model: built by mbridge from an HF folder, with Megatron's data parallelism and Adam around it."""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

from agentrl_megatron import cpu
from agentrl_megatron.attention import LineAttention
from agentrl_megatron.head import Head
from agentrl_megatron.job import RankJob
from agentrl_megatron.positions import Positions

# Fused kernels of apex and TransformerEngine, and what needs them.
_UNFUSED = {
    "masked_softmax_fusion": False,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "apply_rope_fusion": False,
    "gradient_accumulation_fusion": False,
    "persist_layer_norm": False,
}
_LOCAL_NORMS = {
    "input_layernorm.weight": ["model.layers.{layer_number}.input_layernorm.weight"],
    "pre_mlp_layernorm.weight": ["model.layers.{layer_number}.post_attention_layernorm.weight"],
}


@dataclass(frozen=True, slots=True)
class Learner:
    """What a rank trains. ``model`` is the bare module, ``ddp`` the same with gradient buffers."""

    bridge: Any
    model: Any
    head: Head
    positions: Positions
    ddp: Any
    optimizer: Any
    device: torch.device


def build(job: RankJob, device: torch.device) -> Learner:
    """Load the weights and make the optimizer. Raises: ValueError for a kind of model that mbridge does not know."""
    dtype = _dtype(job.dtype, device)
    bridge = _bridge(job, dtype, device)
    make = bridge._model_provider([])
    head, positions = Head(job.temperature), Positions()
    with megatron(device):
        model = make(parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage())
        model.to(device)
        head.attach(model)
        positions.attach(model)
    bridge.load_weights([model], job.model_dir)
    buffers = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
    with megatron(device):
        ddp = DistributedDataParallel(model.config, buffers, model)
        optimizer = get_megatron_optimizer(_optimizer_config(job, dtype), [ddp])
    model.config.finalize_model_grads_func = finalize_model_grads
    model.config.grad_scale_func = optimizer.scale_loss
    return Learner(bridge, model, head, positions, ddp, optimizer, device)


def local_layers(device: torch.device) -> bool:
    """Whether the layers are Megatron's own with our attention; TransformerEngine's know no lines with branches."""
    return device.type == "cpu" or importlib.util.find_spec("transformer_engine") is None


def megatron(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context in which Megatron's own code must run."""
    return contextlib.nullcontext() if device.type == "cuda" else cpu.CudaToCpu()


def _dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto``: bfloat16 on a GPU; float32 on a CPU, so that ranks and engine agree to a few 1e-5."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def _optimizer_config(job: RankJob, dtype: torch.dtype) -> OptimizerConfig:
    return OptimizerConfig(
        optimizer="adam",
        lr=job.learning_rate,
        adam_beta1=job.adam_beta1,
        adam_beta2=job.adam_beta2,
        weight_decay=job.weight_decay,
        clip_grad=job.clip_grad,
        bf16=dtype is torch.bfloat16,
        params_dtype=dtype,
    )


def _bridge(job: RankJob, dtype: torch.dtype, device: torch.device) -> Any:
    from mbridge import AutoBridge

    bridge = AutoBridge.from_config(_hf_config(Path(job.model_dir)), dtype=dtype)
    bridge.set_extra_args(
        # perform_initialization marks which parameters are split among tensor-parallel ranks: without it exports and
        # gradient norms would be silently wrong.
        perform_initialization=True,
        use_cpu_initialization=device.type == "cpu",
        sequence_parallel=False,
        # Pipeline stages exchange one shape a step (micro_batches.plan), so no shapes need to travel.
        variable_seq_lengths=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **_UNFUSED,
    )
    if bridge.hf_config.tie_word_embeddings:
        # The last pipeline stage holds a copy of the embedding as its output layer; the folder holds it once.
        bridge._DIRECT_MAPPING = {**bridge._DIRECT_MAPPING, "output_layer.weight": "model.embed_tokens.weight"}
    if local_layers(device):
        _use_local_layers(bridge)
    return bridge


def _hf_config(model_dir: Path) -> Any:
    """The model's config in the form that mbridge reads, which predates transformers 5."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_dir)
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", getattr(config, "rope_theta", None))
    config.rope_scaling = None
    config.rope_theta = theta
    return config


def _use_local_layers(bridge: Any) -> None:
    """Megatron's own layers instead of TransformerEngine's: other names for the norms, and our attention."""
    bridge._OTHER_MAPPING = {**bridge._OTHER_MAPPING, **_LOCAL_NORMS}
    bridge._MLP_MAPPING = {**bridge._MLP_MAPPING, **_LOCAL_NORMS}
    bridge._get_transformer_layer_spec = lambda vp_stage=None: _local_layers(bridge.config)


def _local_layers(config: Any) -> Any:
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    for layer in block.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = LineAttention
    return block
