"""A tiny model for all tests of the local engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import save_model


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
