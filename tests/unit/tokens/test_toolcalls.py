from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tokens.toolcalls import FORMATS, Call, format_of
from agentrl.types import Tool

BY_NAME = {f.name: f for f in FORMATS}
HERMES, XML, LLAMA = BY_NAME["hermes"], BY_NAME["xml"], BY_NAME["llama3"]
TOOL = Tool(
    "edit", "", {"properties": {"path": {"type": "string"}, "line": {"type": "integer"}, "tags": {"type": "array"}}}
)

arguments = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda v: st.lists(v, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
).filter(lambda a: "tool_call>" not in json.dumps(a, ensure_ascii=False))


@given(st.lists(st.tuples(st.text(min_size=1, max_size=8), arguments), max_size=3))
def test_well_formed_calls_are_read_with_the_text_around_them(calls):
    spelled = [json.dumps({"name": n, "arguments": a}) for n, a in calls if "\ud800" not in n]
    text = "before" + "".join(f"<tool_call>\n{s}\n</tool_call>between" for s in spelled)
    parts, malformed = HERMES.split(text, ())
    assert malformed == 0
    assert [p for p in parts if isinstance(p, Call)] == [Call(n, a) for n, a in calls]
    assert [p for p in parts if isinstance(p, str)] == ["before", *["between"] * len(calls)]


def test_a_list_holds_several_calls():
    text = 'So. [TOOL_CALLS] [{"name": "edit", "arguments": {"a": "]"}, "id": "abcdefghi"}, {"name": "look", "arguments": {}}]'
    assert BY_NAME["mistral-list"].split(text, ()) == (["So. ", Call("edit", {"a": "]"}), "", Call("look", {}), ""], 0)


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        '{"name": "edit", "arguments": {"a": 1}',
        '{"name": "edit", "arguments": "a"}',
        '{"name": "edit", "arguments": [1]}',
        '{"name": "", "arguments": {}}',
        '{"arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '["edit"]',
        '{"name": "edit", "arguments": {"a": NaN}}',
        '{"name": "edit", "arguments": {"a": 1e999}}',
        "[" * 100_000,
        '{"name": "edit", "arguments": {"a": ' + "9" * 5000 + "}}",
    ],
)
def test_a_malformed_call_stays_text_to_the_letter_and_is_counted(body):
    text = f"I edit. <tool_call>{body}</tool_call> "
    good = '<tool_call>{"name": "edit", "arguments": {}}</tool_call>'
    assert HERMES.split(text, ()) == ([text], 1)
    assert HERMES.split(text + good, ()) == ([text, Call("edit", {}), ""], 1)


def test_a_call_that_is_never_closed_is_malformed():
    text = '<tool_call>{"name": "edit", "arguments": {}}'
    assert HERMES.split(text, ()) == ([text], 1)


def test_a_raw_line_break_in_a_json_string_is_accepted():
    parts, malformed = HERMES.split('<tool_call>{"name": "w", "arguments": {"text": "a\nb"}}</tool_call>', ())
    assert (parts[1], malformed) == (Call("w", {"text": "a\nb"}), 0)


def test_lone_surrogates_in_arguments_are_replaced():
    parts, _ = HERMES.split(r'<tool_call>{"name": "w", "arguments": {"\ud800": "\ud800"}}</tool_call>', ())
    assert parts[1] == Call("w", {"\ufffd": "\ufffd"})


def test_xml_parameters_are_typed_by_the_schema():
    text = (
        "<tool_call>\n<function=edit>\n<parameter=path>\n007\n</parameter>\n<parameter=line>\n12\n</parameter>\n"
        '<parameter=tags>\n["a"]\n</parameter>\n<parameter=other>\n3\n</parameter>\n</function>\n</tool_call>'
    )
    parts, malformed = XML.split(text, (TOOL,))
    assert parts[1] == Call("edit", {"path": "007", "line": 12, "tags": ["a"], "other": "3"})
    assert malformed == 0


def test_xml_values_keep_their_lines_and_broken_values_stay_strings():
    text = "<tool_call><function=edit><parameter=path>\na\n\n  b\n</parameter><parameter=line>\nx\n</parameter></function></tool_call>"
    assert XML.split(text, (TOOL,))[0][1] == Call("edit", {"path": "a\n\n  b", "line": "x"})


@pytest.mark.parametrize("body", ["<function=edit>", "<function=edit>junk</function>", '{"name": "edit"}'])
def test_malformed_xml_calls_are_counted(body):
    text = f"<tool_call>{body}</tool_call>"
    assert XML.split(text, (TOOL,)) == ([text], 1)


def test_llama_calls_are_the_whole_reply():
    call = '{"name": "edit", "parameters": {"line": 1}}'
    assert LLAMA.split(call, ()) == (["", Call("edit", {"line": 1}), ""], 0)
    assert LLAMA.split(f"<|python_tag|>{call}", ()) == (["", Call("edit", {"line": 1}), ""], 0)
    assert LLAMA.split(f"Use {call}", ()) == ([f"Use {call}"], 0)
    assert LLAMA.split('{"name": "edit"', ()) == (['{"name": "edit"'], 1)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("... <tool_call>{json}</tool_call>", "hermes"),
        ("<tool_call><function=f><parameter=p>", "xml"),
        ('ipython "parameters": ', "llama3"),
        ("plain chat", None),
    ],
)
def test_the_template_tells_its_format(template, name):
    found = format_of(template)
    assert (found.name if found else None) == name
