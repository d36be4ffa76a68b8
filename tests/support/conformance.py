"""The conformance kit as tests of one backend."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agentrl.sandbox import SandboxBackend
from agentrl.testing.sandbox_checks import CHECKS, Check, judge, with_known

NONE: Mapping[str, str] = {}


def each_check(known: Mapping[str, str] = NONE) -> pytest.MarkDecorator:
    """Parametrizes a test over ``check``. ``known``: name → why this backend fails it; it must then fail."""
    return pytest.mark.parametrize("check", with_known(CHECKS, known), ids=lambda check: check.name)


async def assert_conforms(check: Check, backend: SandboxBackend) -> None:
    """Raises what ``check`` raised, or skips, or says that a known failure is still one."""
    verdict = await judge(check, backend)
    if verdict.outcome == "skipped":
        pytest.skip(verdict.reason)
    if verdict.outcome == "known":
        pytest.xfail(verdict.reason)
    if verdict.error is not None:
        raise verdict.error
