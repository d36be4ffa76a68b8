from __future__ import annotations

from pathlib import Path

from agentrl.cli.outcomes import page

PAGE = Path(__file__).parents[2] / "docs/outcomes.md"


def test_the_page_is_what_the_command_prints():
    assert PAGE.read_text() == page() + "\n", "renew it: agentrl outcomes > docs/outcomes.md"
