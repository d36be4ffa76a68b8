"""Python source of tests, rewritten so that every test fails. Text in, text out: nothing runs here.

Each test still does what it did, so that the code under test gets its chance to misbehave, and fails afterwards unless
assertions have become blind (see ``control_tests.txt``). A script without tests fails at its end (``control_script.txt``).
"""

from __future__ import annotations

import ast
import secrets
from collections.abc import Iterable, Iterator, Sequence

from agentrl.tools.rawgit import script as _text

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def sabotaged(source: bytes, *, script: bool, changed: Sequence[str] = ()) -> bytes | None:
    """A Python file whose tests all fail; None when it has none.

    ``script``: it is run by itself, so that one without tests fails at its end, unless code in a file of ``changed``
    (absolute paths) ends it first.
    """
    try:
        text = source.decode()
        tree = ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return None
    definitions = [node for node in _module_level(tree.body) if _holds_tests(node)]
    if not definitions:
        stub = _text("control_script.txt").replace("CHANGED", repr(list(changed))).replace("SOURCE", ascii(text))
        return stub.encode() if script else None
    mark = f"_control_{secrets.token_hex(8)}"
    lines = text.splitlines(keepends=True)
    for node in sorted(definitions, key=lambda node: node.lineno, reverse=True):
        lines.insert(node.lineno - 1, f"{' ' * node.col_offset}@{mark}\n")
    lines.insert(_after_future(tree), _text("control_tests.txt").replace("CONTROL", mark))
    return "".join(lines).encode()


def _module_level(body: Iterable[ast.stmt]) -> Iterator[_Definition]:
    """Functions and classes that a module defines, also under its conditions."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _module_level(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def _holds_tests(node: _Definition) -> bool:
    if not isinstance(node, ast.ClassDef):
        return node.name.startswith("test")
    own = (n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(name.startswith("test") for name in own) or bool(node.bases and "test" in node.name.lower())


def _after_future(tree: ast.Module) -> int:
    """How many lines stand before the first statement that may be anything."""
    line = 0
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        line = node.end_lineno or line
    return line
