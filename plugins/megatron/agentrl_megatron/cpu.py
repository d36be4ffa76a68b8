"""What Megatron-core needs to run without a GPU. Nothing here is used, or changed, where CUDA is available.

Megatron-core (0.16) takes a current CUDA device for granted in three ways; each has its remedy below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def prepare() -> None:
    """Call once, before a model is built."""
    # Rotary embeddings, pipeline buffers and exported weights are placed by `torch.cuda.current_device()`.
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    _install_random_tracker()


def _install_random_tracker() -> None:
    """Attention and dropout fork a CUDA random state by name, and fail where it was never added."""
    from megatron.core.tensor_parallel import random

    class NoRandomStates(random.CudaRNGStatesTracker):  # type: ignore[misc]
        @contextlib.contextmanager
        def fork(self, name: str = "") -> Iterator[None]:
            yield

        def get_states(self) -> dict[str, Any]:
            return {}

    random._CUDA_RNG_STATE_TRACKER = NoRandomStates()
    random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True


class CudaToCpu(TorchFunctionMode):
    """While active, tensors asked for on ``cuda`` are made on the CPU.

    Optimizers and gradient clipping write ``device='cuda'`` and ``.cuda()``, and compare ``tensor.type()`` with
    ``torch.cuda.FloatTensor``; so they are built, and stepped, inside this mode.
    """

    def __torch_function__(self, func: Any, types: Sequence[Any], args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not options:
            return func(args[0]).replace("torch.", "torch.cuda.", 1)
        return func(*args, **options)
