"""``agentrl check sandbox``: real machines, a verdict on each promise, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plugin_folder import plugin_folder

from agentrl.cli.app import main

PLUGIN = """
    from agentrl.api import hookimpl
    from agentrl_local.backend import LocalBackend
    from broken_backends import BrokenBackend, answers, does_not_close
    from dataclasses import replace

    def forgetful(settings):
        return BrokenBackend(LocalBackend(settings), does_not_close)

    def vague(settings):
        return BrokenBackend(LocalBackend(settings), answers(lambda r: replace(r, exit_code=min(r.exit_code, 1))))

    def absent(settings):
        async def probe():
            return "no kernel: apt-get install kernel"

        def defect(broken):
            broken.probe = probe

        return BrokenBackend(LocalBackend(settings), defect)

    @hookimpl
    def agentrl_register_sandboxes(register):
        for name in ("forgetful", "vague", "absent"):
            register(name, f"{__name__}:{name}", settings="agentrl_local.settings:LocalSettings")
"""


@pytest.fixture(autouse=True)
def environ(tmp_path, monkeypatch):
    with plugin_folder(tmp_path) as folder:
        monkeypatch.setenv("AGENTRL_PLUGINS", folder.module("defective", PLUGIN))
        monkeypatch.setenv("SWE_LOCAL_STATE_DIR", str(tmp_path / "local"))
        monkeypatch.setenv("COLUMNS", "200")
        yield


@pytest.fixture
def check(capsys):
    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["check", "sandbox", *words])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def machines(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "local" / "sandboxes").iterdir())


def test_promises_that_are_kept(check, tmp_path):
    code, out, _ = check("local", "--only", "exit_codes")
    assert code == 0 and "exit_codes_are_real" in out and "1 passed" in out
    assert machines(tmp_path) == []


def test_a_promise_that_is_broken_is_shown_with_what_was_seen(check):
    code, out, _ = check("vague", "--only", "*_are_real")
    assert code == 1 and "2 failed" in out
    assert "failed exit_codes_are_real: exit 255: 1 instead of 255" in out


def test_json_is_all_there_is_on_stdout(check):
    code, out, err = check("vague", "--json", "--only", "codes", "--known", "exit_codes_are_real=a list of two")
    made = json.loads(out)
    assert (code, made["sandbox"], made["ok"], made["counts"], made["left"]) == (0, "vague", True, {"known": 1}, [])
    assert made["checks"][0]["reason"] == "a list of two"
    assert "exit_codes" not in err


def test_a_known_failure_that_is_none_fails(check):
    code, out, _ = check("local", "--only", "exit_codes", "--known", "exit_codes_are_real=a list of two")
    assert code == 1 and "take it off the list" in out


def test_what_does_not_apply_is_skipped_with_a_reason(check):
    code, out, _ = check("local", "--only", "users_are_apart")
    assert code == 0 and "not declared: users" in out and "1 skipped" in out


def test_machines_that_were_left_behind_are_counted_and_deleted(check, tmp_path):
    code, out, _ = check("forgetful", "--only", "exit_codes")
    assert code == 1 and "1 passed" in out and "left behind, deleted now: local-" in out
    assert machines(tmp_path) == []


def test_a_backend_that_makes_no_machines_says_what_is_missing(check, tmp_path):
    code, _, err = check("absent")
    assert code == 1 and "absent makes no machines here: no kernel: apt-get install kernel" in err
    assert not (tmp_path / "local" / "sandboxes").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody",), "there is no sandbox nobody"),
        (("local", "--only", "xyz"), "no check is called like xyz"),
        (("local", "--known", "xyz=why"), "there is no check xyz"),
        (("local", "--known", "exit_codes_are_real"), "write CHECK=REASON"),
        (("local", "SWE_LOCAL_FOLDERS"), "write NAME=VALUE"),
    ],
)
def test_mistakes_are_told_before_any_machine_is_made(check, words, said, tmp_path):
    code, _, err = check(*words)
    assert code == 2 and said in err
    assert not (tmp_path / "local" / "sandboxes").exists()
