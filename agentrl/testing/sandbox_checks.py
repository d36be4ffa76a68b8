"""What every sandbox backend must do, as plain functions: the conformance kit for plugins.

A check takes a :class:`SandboxBackend`, makes the machines it needs, and raises AssertionError with what it saw. Run those
of :data:`CHECKS` whose ``needs`` your backend has, see :func:`applies`::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    async def test_conformance(backend, check):
        if not applies(check, backend.capabilities):
            pytest.skip(check.needs)
        await check.run(backend)

No check measures time: one that hangs is a failure of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentrl.sandbox import SandboxBackend
from agentrl.testing import command_checks as commands
from agentrl.testing import machine_checks as machines
from agentrl.types import Capabilities


@dataclass(frozen=True, slots=True)
class Check:
    """One promise. ``needs``: the capability without which it does not apply (``reach`` or ``network_policy``), or empty."""

    name: str
    needs: str
    run: Callable[[SandboxBackend], Awaitable[None]]


def applies(check: Check, capabilities: Capabilities) -> bool:
    """Whether a backend with ``capabilities`` must pass ``check``."""
    return {
        "": True,
        "reach": bool(capabilities.reach & {"loopback", "bridge"}),
        "network_policy": capabilities.network_policy,
    }[check.needs]


CHECKS: tuple[Check, ...] = tuple(
    Check(run.__name__, needs, run)
    for needs, run in (
        ("", commands.streams_are_bytes),
        ("", commands.exit_codes_are_real),
        ("", commands.sequences_are_argv),
        ("", commands.stdin_is_closed),
        ("", commands.unread_stdin_is_fine),
        ("", commands.cwd_and_env_hold),
        ("", commands.long_commands_run),
        ("", commands.output_is_capped),
        ("", commands.commands_overlap),
        ("", commands.timeout_kills_the_tree),
        ("", commands.cancel_kills),
        ("", commands.background_children_do_not_block),
        ("", machines.files_are_bytes),
        ("", machines.reads_are_honest),
        ("", machines.writes_are_honest),
        ("reach", machines.named_ports_are_reached),
        ("network_policy", machines.other_ports_are_not),
        ("", machines.close_is_final_and_idempotent),
        ("", machines.machines_are_listed_until_closed),
        ("", machines.machines_are_apart),
        ("", machines.a_lifetime_ends),
        ("", machines.layers_are_baked_once),
    )
)
