"""What miles' arguments decide, and under which names problems are told."""

from __future__ import annotations

from argparse import Namespace

from agentrl.settings import Settings, variables
from agentrl_miles.settings import ARGUMENTS, REFUSED, flags, overrides, refusals, session_overrides


def arguments(**changes):
    values = {"hf_checkpoint": "/models/m", "sglang_router_ip": "10.0.0.1", "sglang_router_port": 3000}
    return Namespace(**{**values, **changes})


def test_the_first_argument_that_is_given_decides():
    given = overrides(arguments(rollout_max_context_len=None, max_seq_len=9000, sglang_context_length=1))
    assert given == {
        "AGENTRL_ENGINE": "http://10.0.0.1:3000",
        "AGENTRL_MODEL": "/models/m",
        "SWE_CONTEXT_TOKENS": "9000",
    }
    assert overrides(arguments(rollout_max_context_len=7, max_seq_len=9000))["SWE_CONTEXT_TOKENS"] == "7"


def test_a_zero_is_given():
    assert overrides(arguments(rollout_temperature=0.0))["AGENTRL_TEMPERATURE"] == "0.0"


def test_a_session_brings_its_caps_along():
    url = "http://127.0.0.1:9/sessions/1/v1"
    given = session_overrides(url, {"max_tokens": 64, "top_p": 0.5}, {"max_seq_len": 4000})
    assert given["AGENTRL_ENGINE"] == f"openai:{url}"
    assert (given["SWE_CONTEXT_TOKENS"], given["SWE_MAX_NEW_TOKENS"]) == ("4000", "64")
    assert "SWE_CONTEXT_TOKENS" not in session_overrides(url, {}, {})


def test_what_is_decided_are_settings_of_ours():
    known = {variable.name for variable in variables(Settings)}
    assert {*ARGUMENTS, *overrides(arguments()), *session_overrides("", {}, {}), *flags()} <= known


def test_every_refusal_names_its_flag():
    assert list(refusals(arguments(lora_rank=0, group_rm=False))) == []
    asked = [sentence.partition(":")[0] for sentence in refusals(arguments(**dict.fromkeys(REFUSED, True)))]
    assert asked == [f"--{name.replace('_', '-')}" for name in REFUSED]
