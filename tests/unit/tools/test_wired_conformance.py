"""A wire and nothing else is enough for the whole contract of a sandbox."""

from __future__ import annotations

import pytest
from conformance import assert_conforms, each_check
from wired_machines import WiredBackend


@pytest.mark.slow
@each_check()
async def test_conformance(local_backend, check):
    await assert_conforms(check, WiredBackend(local_backend))
