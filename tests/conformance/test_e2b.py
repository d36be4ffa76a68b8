"""The E2B backend against the conformance kit: the real SDK, a loopback server, machines that really run commands."""

import pytest
from conformance import assert_conforms, each_check

from agentrl.testing.guest_view import two_users
from agentrl.testing.loopback_e2b import LoopbackE2B
from agentrl_e2b.backend import E2BBackend
from agentrl_e2b.settings import E2BSettings

ONE_USER = "machines of the loopback server have users only if whoever runs it is root; those of E2B have them"
KNOWN = {} if two_users() else dict.fromkeys(("commands_run_as_their_user", "users_are_apart"), ONE_USER)


@pytest.fixture
async def e2b_backend():
    async with LoopbackE2B() as server:
        backend = E2BBackend(E2BSettings(api_key=server.api_key, api_url=server.url, sandbox_url=server.url))
        yield backend
        await backend.aclose()
        assert not server.machines, "machines were left"


@each_check(KNOWN)
async def test_conformance(e2b_backend, check):
    await assert_conforms(check, e2b_backend)
