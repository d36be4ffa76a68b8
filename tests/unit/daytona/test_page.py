"""The page about Daytona: its example runs, and every setting that it names exists, and every setting is named."""

import re
from pathlib import Path

from agentrl.settings import Settings, variables
from agentrl_daytona.settings import DaytonaSettings

PAGE = (Path(__file__).parents[3] / "docs" / "daytona.md").read_text()


async def test_its_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope = {}
    exec(example, scope)
    await scope["try_it"]()


def test_its_settings_exist():
    named = set(re.findall(r"`((?:SWE|DAYTONA|ADAPTER)_[A-Z0-9_]+)", PAGE))
    ours = variables(DaytonaSettings)
    assert named <= {
        spelling for cls in (Settings, DaytonaSettings) for v in variables(cls) for spelling in v.spellings
    }
    assert {v.name for v in ours if v.name.startswith("SWE_")} - named == {"SWE_DAYTONA_REQUEST_SEC"}
