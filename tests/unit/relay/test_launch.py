"""What is carried into sandboxes runs on old Pythons and needs nothing but them."""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from importlib.resources import files

import pytest

from agentrl.relay.launch import archive

PACKED = zipfile.ZipFile(io.BytesIO(archive()))
SOURCES = {name: PACKED.read(name).decode() for name in PACKED.namelist()}
SOURCES["exchange.py"] = files("agentrl.relay").joinpath("inside/exchange.py").read_text()


@pytest.mark.parametrize("name", SOURCES)
def test_it_is_python_3_6_and_its_standard_library(name):
    tree = ast.parse(SOURCES[name], feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.level:
            assert f"inside/{node.module}.py" in SOURCES
        else:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | {"inside"}


def test_nothing_that_newer_pythons_added_is_used():
    new = {
        "create_task",
        "get_running_loop",
        "run",
        "to_thread",
        "timeout",
        "TaskGroup",
        "wait_closed",
        "removeprefix",
        "removesuffix",
    }
    for source in SOURCES.values():
        assert not new & {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
        assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.NamedExpr | ast.Match)]
