from __future__ import annotations

import pytest
from plugin_folder import plugin_folder

from agentrl.errors import PluginError, SettingsError
from agentrl.extras import missing_requirements
from agentrl.registry import KINDS, Broken, Offer, Registry
from agentrl.settings import resolve


@pytest.fixture
def folder(tmp_path):
    with plugin_folder(tmp_path) as found:
        yield found


def registry(*offers: Offer, environ: dict[str, str] | None = None) -> Registry:
    made = Registry(resolve(environ or {}))
    for offer in offers:
        made.add(offer)
    return made


def sandbox(name: str, **more: str) -> Offer:
    return Offer("sandboxes", name, more.pop("target", "nowhere:Thing"), **more)


GRADER = """
    class Grader:
        def __init__(self, *settings): self.settings = settings
        def check(self, task): ...
        def gold(self, task): ...
        async def grade(self, task, submission, open_sandbox, *, timeout_sec): ...

    class Half:
        def check(self, task): ...
"""


def test_every_kind_has_a_hook_and_an_interface_with_members():
    from agentrl import hookspecs

    hooks = {name for name in vars(hookspecs) if name.startswith("agentrl_register_")}
    assert hooks == {f"agentrl_register_{kind}" for kind in KINDS}
    assert all(kind.members() for kind in KINDS.values())


@pytest.mark.parametrize("spelling", ["claude-code", "claude_code", "Claude-Code", " CLAUDE_CODE "])
def test_case_dashes_and_underscores_make_no_difference(spelling):
    offer = sandbox("Claude_code")
    assert registry(offer).get("sandboxes", spelling) is offer


def test_kinds_do_not_mix():
    with pytest.raises(PluginError, match="no harness local"):
        registry(sandbox("local")).get("harnesses", "local")


def test_an_unknown_name_gets_a_suggestion_and_the_list():
    with pytest.raises(PluginError, match=r"no sandbox dayton\. Did you mean daytona\? Known: daytona, e2b"):
        registry(sandbox("e2b"), sandbox("daytona")).get("sandboxes", "dayton")


def test_two_offers_of_one_name_are_an_error_only_when_it_is_asked_for():
    ours = sandbox("e2b", plugin="agentrl_e2b", origin="agentrl 0.1.0")
    theirs = sandbox("E2B", plugin="stranger", origin="evil-e2b 6.6")
    made = registry(ours, theirs, sandbox("local"))
    assert made.get("sandboxes", "local").name == "local"
    with pytest.raises(PluginError) as caught:
        made.get("sandboxes", "e2b")
    for part in (
        "agentrl 0.1.0",
        "evil-e2b 6.6",
        "AGENTRL_DISABLE_PLUGINS=agentrl_e2b",
        "AGENTRL_DISABLE_PLUGINS=stranger",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "broken",
    [
        Broken("modal", "agentrl_modal", "agentrl-modal 2.0", ValueError("bad day")),
        Broken("x", "agentrl_modal", "agentrl-modal 2.0", ValueError("bad day"), (sandbox("modal"),)),
    ],
    ids=["by the name of its entry point", "by what it offered before it failed"],
)
def test_the_name_of_a_broken_plugin_tells_its_story(broken):
    made = registry(sandbox("local"))
    made.add_broken(broken)
    with pytest.raises(PluginError) as caught:
        made.get("sandboxes", "modal")
    assert "agentrl-modal 2.0" in str(caught.value)
    assert "ValueError: bad day" in str(caught.value)
    assert caught.value.__cause__ is broken.error


def test_an_unknown_name_mentions_broken_plugins_that_may_have_had_it():
    made = registry(sandbox("local"))
    made.add_broken(Broken("p", "p", "p-dist 1", ValueError("bad day")))
    with pytest.raises(PluginError, match=r"(?s)no sandbox firecracker.*p-dist 1.*bad day"):
        made.get("sandboxes", "firecracker")


# ------------------------------------------------------------------------------------------------------- build


def test_an_import_string_is_an_offer_of_itself(folder):
    folder.module("direct", GRADER)
    made = registry()
    part = made.build(made.get("graders", "direct:Grader"))
    assert part.settings == ()


def test_a_part_gets_its_settings(folder):
    folder.module("parts", GRADER)
    folder.module(
        "parts_settings",
        """
        from pydantic import Field
        from agentrl.api import PluginSettings

        class S(PluginSettings):
            depth: int = Field(1, validation_alias="SWE_PARTS_DEPTH", description="d")
        """,
    )
    offer = Offer("graders", "g", "parts:Grader", settings="parts_settings:S")
    assert registry(environ={"SWE_PARTS_DEPTH": "4"}).build(offer).settings[0].depth == 4
    with pytest.raises(SettingsError, match="SWE_PARTS_DEPTH='x'"):
        registry(environ={"SWE_PARTS_DEPTH": "x"}).build(offer)


def test_nothing_is_imported_before_build(folder):
    folder.module("explosive", "raise RuntimeError('imported')")
    made = registry(sandbox("boom", target="explosive:Thing"))
    offer = made.get("sandboxes", "boom")
    made.missing(offer)
    with pytest.raises(RuntimeError, match="imported") as caught:
        made.build(offer)
    assert "the sandbox boom" in "".join(caught.value.__notes__)


def test_what_lacks_a_method_of_its_kind_is_refused(folder):
    folder.module("halves", GRADER)
    with pytest.raises(PluginError, match=r"halves:Half is no grader: it lacks grade, gold"):
        registry().build(Offer("graders", "half", "halves:Half"))


@pytest.mark.parametrize("source", ["import no_such_sdk", "class Thing:\n    def __init__(self): import no_such_sdk"])
def test_a_missing_sdk_names_the_extra_of_the_distribution_that_has_it(folder, source):
    (folder.path / "cloudy.py").write_text(source)
    offer = sandbox(
        "cloud", target="cloudy:Thing", extra="cloud", origin="agentrl-cloud 1.0", distribution="agentrl-cloud"
    )
    with pytest.raises(PluginError) as caught:
        registry().build(offer)
    assert "pip install 'agentrl-cloud[cloud]'" in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_missing_sdk_of_a_plugin_without_distribution_does_not_guess_one(folder):
    folder.module("cloudy", "import no_such_sdk")
    offer = sandbox("cloud", target="cloudy:Thing", extra="cloud", plugin="cloudy_plugin", origin="AGENTRL_PLUGINS")
    with pytest.raises(PluginError, match="the extra cloud of the distribution that brings cloudy_plugin"):
        registry().build(offer)


@pytest.mark.parametrize("target", ["absent_module:Thing", "agentrl.absent_module:Thing"])
def test_a_missing_module_of_the_plugin_itself_is_not_blamed_on_an_sdk(target):
    with pytest.raises(PluginError) as caught:
        registry().build(sandbox("x", target=target, extra="cloud"))
    assert "pip install" not in str(caught.value)
    assert "mend the plugin" in str(caught.value)


def test_a_missing_attribute_is_named():
    with pytest.raises(PluginError, match=r"agentrl\.errors has no Nothing"):
        registry().build(sandbox("x", target="agentrl.errors:Nothing"))


def test_settings_must_derive_from_plugin_settings():
    with pytest.raises(PluginError, match="does not derive from"):
        registry().settings_class(sandbox("x", settings="agentrl.errors:UsageError"))


# -------------------------------------------------------------------------------------------------------- extras


def test_an_extra_is_checked_by_metadata_alone(folder):
    folder.distribution(
        "agentrl-cloud",
        requires=[
            "pluggy>=1",
            "not-installed-anywhere>=2; extra == 'cloud'",
            "pydantic>=9999; extra == 'cloud'",
            "pluggy>=1; extra == 'cloud'",
            "only-elsewhere; sys_platform == 'beos' and extra == 'cloud'",
            "agentrl-cloud[cloud]; extra == 'all'",
            "something-else; extra == 'other'",
        ],
    )
    lacking = missing_requirements("agentrl-cloud", "cloud")
    assert [clause.split()[0] for clause in lacking] == ["not-installed-anywhere", "pydantic"]
    assert "is not installed" in lacking[0]
    assert ">=9999 is needed" in lacking[1]
    assert missing_requirements("agentrl-cloud", "all") == lacking
    assert missing_requirements("no-such-distribution", "cloud") == ()


def test_missing_says_what_to_install(folder):
    folder.distribution("agentrl-cloud", requires=["not-installed-anywhere; extra == 'cloud'"])
    offer = sandbox("cloud", extra="cloud", distribution="agentrl-cloud", origin="agentrl-cloud 1.0")
    assert registry().missing(offer) == "not-installed-anywhere is not installed: pip install 'agentrl-cloud[cloud]'"
    assert registry().missing(sandbox("plain")) is None
