"""Settings of the Docker backend."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentrl.api import PluginSettings


class DockerSettings(PluginSettings):
    """Which engine, which images it may use, and how its containers reach the gateway."""

    host: str = Field(
        "unix:///var/run/docker.sock",
        validation_alias="DOCKER_HOST",
        description="Docker engine: `unix://PATH` or `tcp://HOST:PORT`",
    )
    tls_verify: bool = Field(
        False, validation_alias="DOCKER_TLS_VERIFY", description="Speak TLS to a Docker engine at `tcp://HOST:PORT`"
    )
    cert_path: str = Field(
        "",
        validation_alias="DOCKER_CERT_PATH",
        description="Folder with the `ca.pem`, `cert.pem` and `key.pem` for that",
    )
    image: str = Field(
        "",
        validation_alias="SWE_DOCKER_IMAGE",
        description="Image of containers for tasks that name none (or `host`, which only local sandboxes have)",
    )
    pull: Literal["never", "missing"] = Field(
        "never",
        validation_alias="SWE_DOCKER_PULL",
        description="`missing`: pull images that the engine does not have; `never`: a missing image is an error",
    )
    network: Literal["auto", "none", "bridge", "host"] = Field(
        "auto",
        validation_alias="SWE_DOCKER_NETWORK",
        description="`none`: nothing but the gateway is reached, on the container's own loopback (needs root on the engine's machine); "
        "`bridge`: Docker's network; `host`: the engine machine's own; `auto`: `none` where it can be had, else `bridge`",
    )
    user: str = Field(
        "",
        validation_alias="SWE_DOCKER_USER",
        description="User that commands run as, a name or UID[:GID] (default: the image's)",
    )
    timeout_sec: float = Field(
        120.0,
        gt=0,
        validation_alias="SWE_DOCKER_TIMEOUT_SEC",
        description="Longest time that the Docker engine may take for an answer",
    )
