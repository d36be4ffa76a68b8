"""The conformance kit notices: each defect fails the checks that are there for it."""

from __future__ import annotations

import ast
import inspect

import pytest
from broken_backends import DEFECTS, BrokenBackend, lives_for_ever

from agentrl.testing.sandbox_checks import CHECKS, applies, judge

BY_NAME = {check.name: check for check in CHECKS}
NOTICED = [
    pytest.param(defect, BY_NAME[name], id=f"{what.replace(' ', '-')}-{name}")
    for what, (defect, names) in DEFECTS.items()
    for name in names
]


@pytest.mark.parametrize(("defect", "check"), NOTICED)
async def test_a_defect_is_noticed(local_backend, defect, check):
    broken = BrokenBackend(local_backend, defect)
    if not applies(check, broken.capabilities):
        pytest.skip("the local backend cannot do it here")
    verdict = await judge(check, broken)
    assert verdict.outcome == "failed"
    assert isinstance(verdict.error, AssertionError), verdict.reason
    assert verdict.reason


async def test_a_machine_without_an_end_is_noticed(local_backend):
    verdict = await judge(BY_NAME["a_lifetime_ends"], BrokenBackend(local_backend, lives_for_ever), limit_sec=4)
    assert (verdict.outcome, verdict.reason) == ("failed", "no end within 4 s")
    assert await local_backend.list({}) == []


@pytest.mark.parametrize(
    "module", dict.fromkeys(inspect.getmodule(check.run) for check in CHECKS), ids=lambda module: module.__name__
)
def test_every_assertion_says_what_was_seen(module):
    found = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Assert)]
    assert [ast.unparse(node) for node in found if node.msg is None] == []


def test_names_are_unique_and_every_check_says_what_it_promises():
    assert len(BY_NAME) == len(CHECKS)
    assert all(check.run.__doc__ and check.run.__doc__.endswith(".") for check in CHECKS)
