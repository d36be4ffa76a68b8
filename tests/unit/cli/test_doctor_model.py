"""``agentrl doctor --model``: the verdict on a model's chat format, in words and as JSON."""

from __future__ import annotations

import json

import pytest
from tiny_model import tiny_model

from agentrl.cli.app import main


def verdict(capsys, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    with pytest.raises(SystemExit) as ended:
        main(("doctor", "--json", "--model", *words))
    findings = json.loads(capsys.readouterr().out)
    return ended.value.code or 0, {finding["what"]: finding for finding in findings}


def test_a_good_format_is_told_in_five_answers(capsys, tmp_path):
    code, found = verdict(capsys, str(tiny_model(tmp_path / "m")))
    assert code == 0
    assert {what: finding["detail"].partition(":")[0] for what, finding in found.items()} == {
        "chat format": "template",
        "prefix-stable?": "yes",
        "what may follow a reply?": "tool, user, system",
        "do tool calls round-trip?": "yes",
        "are control ids reachable from content?": "no",
    }


def test_a_format_that_rewrites_its_past_can_be_used_and_one_without_an_end_cannot(capsys, tmp_path):
    folder = tiny_model(tmp_path / "m")
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("text(message.content)", "(text(message.content) if loop.last)"))
    code, found = verdict(capsys, str(folder))
    assert (code, found["prefix-stable?"]["detail"].partition(":")[0]) == (0, "no")
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    code, found = verdict(capsys, str(folder))
    assert code == 1
    assert "another chat template" in found["what may follow a reply?"]["missing"]


@pytest.mark.parametrize("words", [("nowhere",), (".", "AGENTRL_RENDERER=qwen33")])
def test_what_cannot_be_loaded_is_a_finding(capsys, tmp_path, words):
    folder = tiny_model(tmp_path / "m")
    code, found = verdict(capsys, str(folder / words[0]), *words[1:])
    [finding] = found.values()
    assert code == 1
    assert finding["missing"]
