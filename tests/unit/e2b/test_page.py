"""The page about E2B: its example runs, and every setting that it names exists."""

import re
from pathlib import Path

import pytest
from e2b.connection_config import ApiParams

from agentrl.settings import Settings, variables
from agentrl_e2b.settings import E2BSettings

PAGE = (Path(__file__).parents[3] / "docs" / "e2b.md").read_text()


async def test_its_example_runs(monkeypatch):
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_API_KEY"):
        monkeypatch.setenv(name, "")  # undone afterwards, whatever the example sets
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    if "retries" not in ApiParams.__annotations__:
        pytest.skip("this SDK does not retry by itself, which the example counts on")
    scope = {}
    exec(example, scope)
    await scope["try_it"]()


def test_its_settings_exist():
    named = set(re.findall(r"`((?:SWE|E2B|ADAPTER)_[A-Z0-9_]+)", PAGE))
    known = {spelling for cls in (Settings, E2BSettings) for v in variables(cls) for spelling in v.spellings}
    assert named - known == {"E2B_DEBUG"}
    assert {v.name for v in variables(E2BSettings) if v.name.startswith("SWE_E2B")} - named <= {
        "SWE_E2B_USER",
        "SWE_E2B_CWD",
        "SWE_E2B_CREATE_TIMEOUT",
        "SWE_E2B_REQUEST_TIMEOUT",
    }
