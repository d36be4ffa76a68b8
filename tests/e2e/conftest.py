"""Whole runs of the command."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import Command
from tiny_model import tiny_model


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model."""
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty folder with a name that nothing else on this machine has."""
    folder = Path(tempfile.mkdtemp(prefix="agentrl-e2e-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def command(home: Path, model_dir: Path) -> Callable[..., Command]:
    """``command(rows, VARIABLE=…)`` for training on these rows with the tiny model."""

    def make(tasks: Sequence[dict[str, Any]], **variables: str) -> Command:
        data = home / "tasks.jsonl"
        data.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        small = {
            "SWE_TRAIN_DATA": str(data),
            "AGENTRL_MODEL": str(model_dir),
            "AGENTRL_DTYPE": "float32",
            "AGENTRL_LOCAL_START_SEC": "600",
            "AGENTRL_GROUPS": "2",
            "AGENTRL_GROUP_SIZE": "2",
            "AGENTRL_ITERATIONS": "2",
            "SWE_CONTEXT_TOKENS": "2048",
            "SWE_MAX_NEW_TOKENS": "24",
            "SWE_MAX_TURNS": "2",
        }
        return Command(home, {**small, **variables})

    return make
