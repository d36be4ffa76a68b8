"""What every sandbox backend must do, as plain functions: the conformance kit for plugins.

A check takes a :class:`~agentrl.sandbox.SandboxBackend`, makes the machines it needs from the default image (bash and coreutils
are there; root, a user's name or python are not assumed), and raises AssertionError with what it saw. ``agentrl check
sandbox NAME`` runs them all; as a test, with what is known to fail and why::

    @pytest.mark.parametrize("check", with_known(CHECKS, {"a_lifetime_ends": "whole minutes only"}), ids=lambda check: check.name)
    async def test_conformance(backend, check):
        verdict = await judge(check, backend)
        if verdict.outcome == "skipped":
            pytest.skip(verdict.reason)
        if verdict.outcome == "known":
            pytest.xfail(verdict.reason)
        if verdict.error is not None:
            raise verdict.error

No check measures time: one that hangs is a failure of its own.
"""

from __future__ import annotations

from agentrl.testing import (
    command_checks,
    ending_checks,
    file_checks,
    layer_checks,
    limit_checks,
    machine_checks,
    network_checks,
    trace_checks,
)
from agentrl.testing.check import Check, Verdict, applies, judge, lacking, with_known

CHECKS: tuple[Check, ...] = (
    *command_checks.CHECKS,
    *ending_checks.CHECKS,
    *trace_checks.CHECKS,
    *file_checks.CHECKS,
    *network_checks.CHECKS,
    *limit_checks.CHECKS,
    *layer_checks.CHECKS,
    *machine_checks.CHECKS,
)

__all__ = ["CHECKS", "Check", "Verdict", "applies", "judge", "lacking", "with_known"]
