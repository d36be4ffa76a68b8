"""What is printed of a run holds other people's words: file names, errors, names of levels."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rollouts import two_turns

from agentrl.cli.console import ConsoleWatcher, print_summary
from agentrl.outcomes import ExitStatus
from agentrl.rollout.board import Board
from agentrl.rollout.metrics import iteration_metrics
from agentrl.types import Group

MARKUP = "[/usr/bin/git] [red]x"
"""Words that the printing library would take for its own."""


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(console: Console) -> str:
    return console.file.getvalue()


def test_other_peoples_words_are_printed_as_they_are(console, tmp_path):
    lost = replace(two_turns(reward=None, status=ExitStatus.SANDBOX_FAILED), message=MARKUP)
    solved = replace(two_turns("i0-g0-r1"), level=MARKUP)
    row = iteration_metrics(0, [Group("i0-g0", "t", (lost, solved))], {}, {"rollout": 1.0})
    with ConsoleWatcher(console, Board(tmp_path), total=1) as watcher:
        watcher.phase(0, "checkpoint", MARKUP)
        watcher.rollout(lost)
        watcher.iteration(row)
    print_summary(console, [row], Path(MARKUP), None)
    lines = printed(console).splitlines()
    assert f"i0-g0-r0 aborted: sandbox_failed: {MARKUP}" in lines
    assert any(line.startswith("iteration 1/1") and f"{MARKUP} 1.00" in line for line in lines)
    assert any(MARKUP in line and "1.000" in line for line in lines)
    assert f"run:  {MARKUP}" in lines
