"""The connection to a Docker engine: where it is, whether it will do, and what its errors mean.

Not here: containers and images.
"""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiodocker
import aiohttp

from agentrl.api import SandboxError, SandboxGone, SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl_docker.settings import DockerSettings

OLDEST_API = (1, 41)
CONNECT_SEC = 10.0
_UNIX = "unix://"
NO_ANSWER = 900  # aiodocker's own status for connections that failed


def is_local(host: str) -> bool:
    """Whether the engine runs on this machine, as far as its address tells."""
    return host.startswith(_UNIX)


def connect(settings: DockerSettings) -> aiodocker.Docker:
    """A client with as many connections as commands run at once; nothing is sent yet. To be called inside a running loop.

    Raises: SandboxRefused (no address of an engine, no certificates).
    """
    host = settings.host
    timeout = aiohttp.ClientTimeout(total=settings.timeout_sec, sock_connect=CONNECT_SEC)
    if is_local(host):
        # aiodocker composes URLs from the address it is given; whatever name stands there, the socket is dialled.
        socket = aiohttp.UnixConnector(host.removeprefix(_UNIX), limit=0)
        return aiodocker.Docker("unix://localhost", connector=socket, timeout=timeout)
    if host.startswith("ssh://"):
        raise SandboxRefused(
            f"DOCKER_HOST={host}: carry the socket here with `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock …`, "
            "then set DOCKER_HOST=unix:///tmp/engine.sock"
        )
    found = re.fullmatch(r"(tcp|https?)://([\w.:\[\]-]+)/?", host)
    if found is None:
        raise SandboxRefused(f"DOCKER_HOST={host} is no address of an engine: unix://PATH or tcp://HOST:PORT")
    tls = _certificates(Path(settings.cert_path)) if settings.tls_verify else found[1] == "https"
    remote = aiohttp.TCPConnector(ssl=tls, limit=0)
    return aiodocker.Docker(f"{'https' if tls else 'http'}://{found[2]}", connector=remote, timeout=timeout)


def _certificates(folder: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except OSError as error:
        raise SandboxRefused(f"DOCKER_TLS_VERIFY is set: ca.pem, cert.pem and key.pem in {folder}: {error}") from error
    return context


async def disconnect(client: aiodocker.Docker) -> None:
    """Close everything that :func:`connect` opened."""
    await client.close()
    await client.connector.close()


@contextmanager
def speaking(what: str) -> Iterator[None]:
    """Turn what aiodocker raises in the block into our errors; ``what`` was tried."""
    try:
        yield
    except aiodocker.DockerError as error:
        raise meaning(error, what) from error
    except TimeoutError as error:
        raise SandboxError(f"{what}: the Docker engine did not answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise SandboxError(f"{what}: the connection to the Docker engine broke: {error}") from error


def meaning(error: aiodocker.DockerError, what: str) -> SandboxError:
    """The class that decides about retries."""
    text = f"{what}: {error.message}"
    if error.status == NO_ANSWER:
        # Only a connection that never was has certainly carried nothing.
        return (SandboxTransient if isinstance(error.__context__, aiohttp.ClientConnectorError) else SandboxError)(text)
    if error.status == 404:
        return SandboxGone(text)
    if error.status == 429 or "toomanyrequests" in error.message:
        return SandboxThrottled(text)
    return (SandboxRefused if 400 <= error.status < 500 else SandboxTransient)(text)


async def trouble(client: aiodocker.Docker, host: str) -> str | None:
    """What keeps this engine from being used, and the command that helps; None: nothing."""
    try:
        version = await client.version()
    except aiodocker.DockerError as error:
        return _unreachable(host, error)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        return f"the Docker engine at {host} does not answer: {error or type(error).__name__}"
    spoken = str(version.get("ApiVersion", "0.0"))
    if tuple(map(int, spoken.split(".")[:2])) < OLDEST_API:
        oldest = ".".join(map(str, OLDEST_API))
        return f"the engine at {host} speaks API {spoken}, {oldest} (Docker 20.10) is needed: apt-get install docker.io"
    return None


def _unreachable(host: str, error: aiodocker.DockerError) -> str:
    code = getattr(error.__context__, "errno", None)
    path = Path(host.removeprefix(_UNIX))
    if code in (errno.EACCES, errno.EPERM):
        return f"no permission to use {path}: `sudo usermod -aG docker $USER`, then log in again"
    if is_local(host) and code == errno.ENOENT:
        return f"no Docker engine at {path}: `sudo apt-get install docker.io`, or set DOCKER_HOST to where one is"
    if is_local(host) and code == errno.ECONNREFUSED:
        return f"the Docker engine of {path} is not running: `sudo systemctl start docker`"
    return f"the Docker engine at {host} cannot be reached: {error.message}"
