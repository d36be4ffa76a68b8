"""The Docker backend against the conformance kit, on a real engine."""

from conformance import assert_conforms, each_check


@each_check()
async def test_conformance(docker_backend, check):
    await assert_conforms(check, docker_backend)
