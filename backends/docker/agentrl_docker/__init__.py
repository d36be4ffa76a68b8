"""Sandboxes in containers of a Docker engine, here or wherever ``DOCKER_HOST`` points."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_sandboxes(register: Register) -> None:
    """Offer ``docker``."""
    register(
        "docker",
        "agentrl_docker.backend:DockerBackend",
        settings="agentrl_docker.settings:DockerSettings",
        extra="docker",
        summary="Containers of a Docker engine",
    )
