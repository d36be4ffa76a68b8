from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import agentrl
from agentrl.cli.app import COMMANDS, main
from agentrl.cli.assignments import read_assignments, read_data_assignments
from agentrl.errors import SettingsError


def run(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def test_help_lists_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name, command in COMMANDS.items():
        assert name in out
        assert command.summary.split(".")[0][:30] in out


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"{agentrl.__version__}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_of_the_table_leads_to_a_documented_function(name):
    module, _, function = COMMANDS[name].target.partition(":")
    assert inspect.getdoc(getattr(importlib.import_module(module), function))


def test_a_user_error_is_one_clear_line_and_code_2(capsys):
    code, out, err = run(capsys, "plan", "SWE_MAX_TURNS=lots")
    assert (code, out) == (2, "")
    assert err.startswith("agentrl: SWE_MAX_TURNS='lots'")
    assert err.count("\n") == 1


def test_help_imports_nothing_heavy():
    script = (
        "import sys\nfrom agentrl.cli.app import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'aiohttp', 'pydantic', 'pluggy', 'agentrl.plugins'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_plan_imports_neither_torch_nor_transformers():
    script = (
        "import sys\nfrom agentrl.cli.app import main\n"
        "try: main(['plugins'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'megatron'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_assignments():
    assert read_assignments(["SWE_A=1", "SWE_B=x=y", "SWE_C="]) == {"SWE_A": "1", "SWE_B": "x=y", "SWE_C": ""}
    assert read_assignments(None) == {}
    for word in ("SWE_A", "=1", "--x=1"):
        with pytest.raises(SettingsError, match="NAME=VALUE"):
            read_assignments([word])


def test_data_comes_before_assignments(tmp_path):
    assert read_data_assignments(["x.jsonl", "SWE_A=1"], "D") == {"D": "x.jsonl", "SWE_A": "1"}
    assert read_data_assignments(["SWE_A=1"], "D") == {"SWE_A": "1"}
    assert read_data_assignments(None, "D") == {}
    (tmp_path / "a=b").mkdir()
    assert read_data_assignments([str(tmp_path / "a=b")], "D") == {"D": str(tmp_path / "a=b")}
    (tmp_path / "a=b/tasks.jsonl").touch()
    assert read_data_assignments([str(tmp_path / "a=b")], "D") == {"D": str(tmp_path / "a=b/tasks.jsonl")}
