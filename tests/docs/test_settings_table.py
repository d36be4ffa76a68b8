"""The README's table of settings is the generated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.cli.settings import BEGIN, END, settings_markdown
from agentrl.plugins import load_plugins
from agentrl.settings import Settings, resolve, variables

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.fixture(scope="module")
def registry():
    return load_plugins(resolve({})).registry


def test_the_block_is_up_to_date(registry):
    assert README.count(BEGIN) == README.count(END) == 1
    block = README[README.index(BEGIN) : README.index(END) + len(END)]
    assert block == settings_markdown(registry), "run: agentrl settings --update README.md"


def test_every_setting_of_core_and_of_what_comes_with_it_has_a_row(registry):
    table = settings_markdown(registry)
    ours = [cls for cls, offer in registry.settings_classes().items() if offer.distribution == "agentrl"]
    for cls in (Settings, *ours):
        for variable in variables(cls):
            assert f"\n| `{variable.name}` | " in table
            assert variable.description


def test_no_row_holds_a_path_of_this_machine(registry):
    assert str(Path.home()) not in settings_markdown(registry)


def test_a_variable_that_two_parts_share_has_one_default(registry):
    defaults: dict[str, str] = {}
    for cls in (Settings, *registry.settings_classes()):
        for variable in variables(cls):
            assert defaults.setdefault(variable.name, variable.default) == variable.default, variable.name
