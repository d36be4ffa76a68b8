"""Replies in XML: what is executed, what is warned about, what is refused."""

import pytest

from agentrl_terminus_2.reply import Keystrokes
from agentrl_terminus_2.xml_reply import read_xml, salvage_xml

LS = '<keystrokes duration="0.1">ls\n</keystrokes>'


def response(commands=LS, *, analysis="<analysis>a</analysis>", plan="<plan>p</plan>", rest=""):
    return f"<response>\n{analysis}\n{plan}\n<commands>\n{commands}\n</commands>{rest}\n</response>"


def test_a_clean_reply_has_nothing_to_say():
    read = read_xml(response())
    assert read.commands == (Keystrokes("ls\n", 0.1),)
    assert read.feedback == ""
    assert not read.complete


def test_keystrokes_are_verbatim():
    keys = '  cat <<EOF > a && echo "<x>&amp;" \n'
    read = read_xml(response(f'<keystrokes duration="1">{keys}</keystrokes>'))
    assert read.commands[0].keys == keys
    assert any("&amp; is read verbatim" in warning for warning in read.warnings)


@pytest.mark.parametrize(
    ("rest", "complete"),
    [
        ("<task_complete>true</task_complete>", True),
        ("<task_complete> TRUE </task_complete>", True),
        ("<task_complete>false</task_complete>", False),
        ("<task_complete/>", False),
        ("<task_complete></task_complete>", False),
    ],
)
def test_complete_is_said_in_one_way(rest, complete):
    assert read_xml(response(rest=rest)).complete is complete


def test_no_response_is_an_error():
    assert read_xml("ls").error == "No <response> tag found"


def test_no_commands_section_is_an_error_unless_complete():
    body = "<response><analysis>a</analysis><plan>p</plan>{}</response>"
    assert read_xml(body.format("")).error == "Missing <commands> section"
    done = read_xml(body.format("<task_complete>true</task_complete>"))
    assert (done.error, done.complete) == ("", True)


def test_an_unclosed_response_ends_with_the_text():
    assert read_xml(response().removesuffix("</response>")).commands == (Keystrokes("ls\n", 0.1),)


def test_an_empty_commands_section_waits_with_a_warning():
    read = read_xml(response(commands=""))
    assert read.error == ""
    assert read.warnings[0].startswith("Commands section is empty")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("hm " + response(), "Extra text detected before <response> tag"),
        (response() + " ok", "Extra text detected after </response> tag"),
        (response() + response(), "IMPORTANT: Only issue one <response> block at a time. You issued 2"),
        (response(rest="<commands></commands>"), "IMPORTANT: Only issue one <commands> block at a time. You issued 2"),
        (response(rest="<plan>q</plan>"), "Multiple <plan> sections found"),
        (response(rest="<thought>q</thought>"), "Unknown tag found: <thought>"),
        (response(analysis=""), "Missing <analysis> section"),
        (
            response(analysis="<plan>p</plan>", plan="<analysis>a</analysis>"),
            "Sections appear in wrong order. Found: plan",
        ),
        (response("<keystrokes>ls\n</keystrokes>"), "Command 1: Missing duration attribute, using default 1.0"),
        (response('<keystrokes duration="x">ls\n</keystrokes>'), "Command 1: Invalid duration value 'x'"),
        (
            response("<keystrokes duration=1>ls\n</keystrokes>"),
            "Command 1: Attribute 'duration' value should be quoted",
        ),
        (
            response("<keystrokes duration='1'>ls\n</keystrokes>"),
            "Command 1: Use double quotes for attribute 'duration'",
        ),
        (response('<keystrokes wait="1">ls\n</keystrokes>'), "Command 1: Unknown attribute 'wait'"),
        (response('<keystrokes duration="1">a</keystrokes>' + LS), "Command 1 should end with newline"),
        (response('<keystrokes duration="1">a\\r\\n</keystrokes>'), "Warning: \\r\\n line endings"),
    ],
)
def test_warnings(text, warning):
    read = read_xml(text)
    assert read.error == ""
    assert any(w.startswith(warning) for w in read.warnings), read.warnings


def test_a_whole_response_before_the_cut_is_salvaged():
    read = salvage_xml(response() + "\nand then I would")
    assert read is not None
    assert read.commands == (Keystrokes("ls\n", 0.1),)


def test_half_a_response_and_two_blocks_of_commands_are_not_salvaged():
    assert salvage_xml(response()[:-20]) is None
    assert salvage_xml(response(rest="<commands></commands>") + " and") is None
