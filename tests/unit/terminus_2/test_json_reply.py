"""Replies in JSON: what is executed, what is warned about, what is refused."""

import json

import pytest

from agentrl_terminus_2.json_reply import read_json
from agentrl_terminus_2.reply import Keystrokes

COMMANDS = [{"keystrokes": "ls\n", "duration": 0.1}]


def reply(**changes):
    fields = {"analysis": "a", "plan": "p", "commands": COMMANDS, **changes}
    return read_json(json.dumps({k: v for k, v in fields.items() if v is not None}))


def test_a_clean_reply_has_nothing_to_say():
    read = reply()
    assert read.commands == (Keystrokes("ls\n", 0.1),)
    assert not read.complete
    assert read.feedback == ""


@pytest.mark.parametrize("value", [True, "true", "YES", "1"])
def test_complete_may_be_said_in_several_ways(value):
    assert reply(task_complete=value).complete


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("no json at all", "No valid JSON found in response"),
        ('{"analysis": "a", "plan": oops}', "Invalid JSON"),
        ('{"analysis": "a"}', "Missing required fields: plan, commands"),
        ('{"analysis":"","plan":"","commands":"ls"}', "Field 'commands' must be an array"),
        ('{"analysis":"","plan":"","commands":["ls"]}', "Command 1 must be an object"),
        ('{"analysis":"","plan":"","commands":[{"duration":1}]}', "Command 1 missing required 'keystrokes' field"),
        ('{"analysis":"","plan":"","commands":[{"keystrokes":1}]}', "Command 1 'keystrokes' must be a string"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_runs_nothing(text, error):
    read = read_json(text)
    assert read.error.startswith(error)
    assert read.commands == ()
    assert read.feedback.startswith("ERROR: ")


def test_text_around_the_object_is_tolerated_with_a_warning():
    read = read_json('Sure! {"analysis":"{","plan":"}","commands":[]} Done.')
    assert read.error == ""
    assert read.warnings == ("Extra text detected before JSON object", "Extra text detected after JSON object")
    assert (
        read.feedback == "WARNINGS: - Extra text detected before JSON object\n- Extra text detected after JSON object"
    )


def test_missing_braces_are_added():
    read = read_json('{"analysis":"a","plan":"p","commands":[{"keystrokes":"ls\\n","duration":1}]')
    assert read.commands == (Keystrokes("ls\n", 1.0),)
    assert read.warnings[0].startswith("AUTO-CORRECTED: Fixed incomplete JSON by adding missing closing brace")


def test_an_object_behind_a_stray_brace_is_extracted():
    read = read_json('a { b \n{"analysis":"a","plan":"p","commands":[]}')
    assert read.error == ""
    assert "AUTO-CORRECTED: Extracted JSON from mixed content" in read.warnings[0]


def test_warnings_about_commands():
    read = reply(
        commands=[
            {"keystrokes": "a", "wait": 3},
            {"keystrokes": "b\n", "duration": "long"},
            {"keystrokes": "", "duration": 1},
        ]
    )
    assert read.warnings == (
        "Command 1: Missing duration field, using default 1.0",
        "Command 1: Unknown fields: wait",
        "Command 1 should end with newline when followed by another command. Otherwise the two commands will be "
        "concatenated together on the same line.",
        "Command 2: Invalid duration value, using default 1.0",
    )
    assert [c.duration_sec for c in read.commands] == [1.0, 1.0, 1.0]


def test_fields_out_of_order_are_warned_about():
    read = read_json('{"plan":"p","analysis":"a","commands":[]}')
    assert read.warnings == (
        "Fields appear in wrong order. Found: plan → analysis → commands, expected: analysis → plan → commands",
    )


@pytest.mark.parametrize(("asked", "given"), [(3600, 60.0), (-1, 0.0), (float("nan"), 1.0), (10**400, 60.0)])
def test_durations_are_clamped(asked, given):
    assert reply(commands=[{"keystrokes": "x\n", "duration": asked}]).commands[0].duration_sec == given


def test_bad_commands_of_a_complete_reply_are_a_warning():
    read = reply(task_complete=True, commands=["ls"])
    assert (read.complete, read.error, read.commands) == (True, "", ())
    assert "Command 1 must be an object" in read.warnings


def test_deep_nesting_is_an_error_and_no_crash():
    assert read_json('{"a":' * 100_000 + "1" + "}" * 100_000).error.startswith("Invalid JSON")
