from __future__ import annotations

import logging

import pytest
from plugin_folder import offering, plugin_folder

from agentrl.errors import PluginError
from agentrl.plugins import Plugins, load_plugins
from agentrl.settings import resolve


@pytest.fixture
def folder(tmp_path):
    with plugin_folder(tmp_path) as found:
        yield found


def load(*modules: str, disable: str = "") -> Plugins:
    """Built-ins and ``modules``, without what else is installed here."""
    disabled = ",".join(filter(None, ("agentrl", disable)))
    return load_plugins(resolve({"AGENTRL_PLUGINS": ",".join(modules), "AGENTRL_DISABLE_PLUGINS": disabled}))


def names(plugins: Plugins, kind: str) -> list[str]:
    return [offer.name for offer in plugins.registry.offers(kind)]


def test_core_offers_its_dialects_through_the_same_hooks():
    plugins = load()
    assert names(plugins, "dialects") == ["openai-chat", "anthropic", "openai-responses"]
    assert {offer.origin for offer in plugins.registry.offers("dialects")} == {"built-in"}
    assert plugins.broken == ()


def test_a_named_module_is_loaded(folder):
    plugins = load(folder.module("mine", offering("graders", "strict")))
    offer = plugins.registry.get("graders", "strict")
    assert (offer.plugin, offer.origin, offer.distribution) == ("mine", "AGENTRL_PLUGINS", "")


def test_an_installed_distribution_is_found_and_named(folder):
    folder.module("theirs", offering("graders", "kind"))
    folder.distribution("their-graders", "2.5", points={"kind": "theirs"})
    offer = load().registry.get("graders", "kind")
    assert (offer.origin, offer.distribution) == ("their-graders 2.5", "their-graders")


def test_a_module_that_is_named_and_installed_is_loaded_once(folder):
    folder.module("both", offering("graders", "kind"))
    folder.distribution("both-dist", points={"kind": "both"})
    plugins = load("both")
    assert names(plugins, "graders") == ["kind"]
    assert plugins.broken == ()


BROKEN = {
    "import": "import no_such_module_anywhere",
    "exception": "raise ZeroDivisionError('at import')",
    "no hook": "x = 1",
    "unmarked": "def agentrl_register_graders(register): ...",
    "unknown hook": """
        from agentrl.api import hookimpl
        @hookimpl
        def agentrl_register_grader(register): ...
    """,
    "wrong argument": """
        from agentrl.api import hookimpl
        @hookimpl
        def agentrl_register_graders(registrar): ...
    """,
    "raising hook": """
        from agentrl.api import hookimpl
        @hookimpl
        def agentrl_register_graders(register):
            register("lost", "a:b")
            raise KeyError("late")
    """,
    "twice": """
        from agentrl.api import hookimpl
        @hookimpl
        def agentrl_register_graders(register):
            register("same-name", "a:b")
            register("Same_Name", "a:c")
    """,
    "no import string": offering("graders", "x", "module_without_attribute"),
    "settings missing": """
        from agentrl.api import hookimpl
        @hookimpl
        def agentrl_register_graders(register):
            register("lost", "a:b", settings="no_such_module_anywhere:S")
    """,
    "settings without variable": """
        from agentrl.api import PluginSettings, hookimpl
        class S(PluginSettings):
            x: int = 1
        @hookimpl
        def agentrl_register_graders(register):
            register("lost", "a:b", settings=f"{__name__}:S")
    """,
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_takes_nobody_along_and_leaves_nothing(folder, source):
    folder.module("bad", source)
    folder.module("good", offering("graders", "good"))
    folder.distribution("bad-dist", "3.1", points={"bad": "bad"})
    folder.distribution("good-dist", points={"good": "good"})
    plugins = load()
    assert names(plugins, "graders") == ["good"]
    [broken] = plugins.broken
    assert (broken.plugin, broken.module, broken.origin) == ("bad", "bad", "bad-dist 3.1")
    assert "bad-dist 3.1" in str(broken)
    plugins.announce("agentrl_rollout_started", rollout_id="r", task_id="t", iteration=0)


def test_a_stranger_cannot_replace_a_name_silently(folder):
    folder.module("honest", offering("sandboxes", "e2b", "honest_backend:B"))
    folder.module("stranger", offering("sandboxes", "e2b", "stranger_backend:B"))
    folder.distribution("honest-dist", points={"e2b": "honest"})
    folder.distribution("stranger-dist", points={"e2b": "stranger"})
    with pytest.raises(PluginError, match=r"honest-dist 1\.0.*stranger-dist 1\.0|stranger-dist 1\.0.*honest-dist 1\.0"):
        load().registry.get("sandboxes", "e2b")
    for unwanted in ("stranger", "stranger-dist", "STRANGER_DIST"):
        assert load(disable=unwanted).registry.get("sandboxes", "e2b").target == "honest_backend:B"


def test_a_disabled_plugin_is_not_imported(folder):
    folder.module("dangerous", "raise SystemExit('imported')")
    folder.distribution("dangerous-dist", points={"danger": "dangerous"})
    for name in ("danger", "dangerous", "dangerous-dist"):
        assert load(disable=name).broken == ()


def test_disabling_what_is_not_there_is_an_error_with_a_suggestion(folder):
    folder.module("theirs", offering("graders", "kind"))
    folder.distribution("their-graders", points={"kind": "theirs"})
    with pytest.raises(PluginError, match=r"names their-grader, .*Did you mean their-graders"):
        load(disable="their-grader")


def test_core_itself_cannot_be_disabled():
    assert names(load(disable="agentrl"), "dialects") == ["openai-chat", "anthropic", "openai-responses"]


# ------------------------------------------------------------------------------------------------------- events

LISTENER = """
    from agentrl.api import hookimpl
    heard = []

    @hookimpl
    def agentrl_rollout_started(rollout_id, iteration):
        heard.append((rollout_id, iteration))
"""
CRASHING = """
    from agentrl.api import hookimpl

    @hookimpl
    def agentrl_rollout_started(rollout_id):
        raise RuntimeError(f"no room for {rollout_id}")
"""


def test_events_reach_every_plugin_though_one_raises(folder, caplog):
    modules = [folder.module("ear_1", LISTENER), folder.module("crashing", CRASHING), folder.module("ear_2", LISTENER)]
    plugins = load(*modules)
    with caplog.at_level(logging.ERROR):
        plugins.announce("agentrl_rollout_started", rollout_id="r7", task_id="t", iteration=3)
    import ear_1
    import ear_2

    assert ear_1.heard == ear_2.heard == [("r7", 3)]
    [record] = caplog.records
    assert "crashing" in record.getMessage()
    assert "no room for r7" in str(record.exc_info[1])


def test_an_event_that_does_not_exist_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="agentrl_rollout_begun"):
        load().announce("agentrl_rollout_begun")
