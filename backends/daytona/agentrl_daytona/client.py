"""The one SDK client of a backend: made on its owner loop, from settings alone, every call bounded and its errors ours.

Not here: what is asked of the provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import daytona._async.daytona as sdk_module
from daytona import AsyncDaytona, DaytonaConfig

from agentrl.api import SandboxError, SandboxGone, SettingsError
from agentrl_daytona.errors import SDK_ERRORS, translated
from agentrl_daytona.owner import OwnerLoop
from agentrl_daytona.settings import DaytonaSettings

T = TypeVar("T")
Ask = Callable[[AsyncDaytona], Awaitable[T]]


class Client:
    """Asks Daytona, from any loop. The SDK's client is made on first use."""

    def __init__(self, settings: DaytonaSettings) -> None:
        self.settings = settings
        self.owner = OwnerLoop("agentrl-daytona")
        self._sdk: AsyncDaytona | None = None

    async def ask(
        self,
        ask: Ask[T],
        doing: str,
        *,
        within_sec: float | None = None,
        repeatable: bool = True,
        missing: type[SandboxError] = SandboxGone,
    ) -> T:
        """What ``ask`` gets from the SDK's client, within ``within_sec`` (None: what a request may take).

        ``doing``, ``repeatable``, ``missing``: see :func:`agentrl_daytona.errors.translated`. Raises: SandboxError and its
        kinds, SettingsError.
        """
        limit = self.settings.request_sec if within_sec is None else within_sec

        async def bounded() -> T:
            client = self.sdk()
            try:
                async with asyncio.timeout(limit):
                    return await ask(client)
            except SDK_ERRORS as error:
                raise translated(error, doing, repeatable=repeatable, missing=missing) from error

        return await self.owner.run(bounded())

    def sdk(self) -> AsyncDaytona:
        """The SDK's client, on the owner loop only. Raises: SettingsError without credentials."""
        if self._sdk is None:
            if (problem := missing_credentials(self.settings)) is not None:
                raise SettingsError(problem)
            with _no_dotenv():
                self._sdk = AsyncDaytona(_config(self.settings))
        return self._sdk

    async def aclose(self) -> None:
        """End what is under way, close the client and end its thread."""
        await self.owner.run(self._close())
        await self.owner.stop()

    async def _close(self) -> None:
        await self.owner.drain()
        client, self._sdk = self._sdk, None
        if client is not None:
            await client.close()  # type: ignore[no-untyped-call]


def missing_credentials(settings: DaytonaSettings) -> str | None:
    """One sentence that says what to set, or None."""
    if settings.api_key.get_secret_value():
        return None
    if settings.jwt_token.get_secret_value():
        return None if settings.organization_id else "DAYTONA_JWT_TOKEN needs DAYTONA_ORGANIZATION_ID: set it too"
    return "Daytona machines need an account: set DAYTONA_API_KEY (or DAYTONA_API_KEY_FILE) to its API key"


def _config(settings: DaytonaSettings) -> DaytonaConfig:
    """No limit of connections: a command that is waited for holds one, and the lease bounds machines."""
    return DaytonaConfig(
        api_key=settings.api_key.get_secret_value() or None,
        jwt_token=settings.jwt_token.get_secret_value() or None,
        organization_id=settings.organization_id or None,
        api_url=settings.api_url,
        target=settings.target or None,
        connection_pool_maxsize=None,
        otel_enabled=False,
    )


class _NoFiles:
    """In place of the SDK's reader of variables and of .env files: settings have spoken, nothing else has a say."""

    def get(self, name: str) -> None:
        """Nothing is set."""

    get_from_process_env = get
    get_from_file = get


@contextmanager
def _no_dotenv() -> Iterator[None]:
    """The SDK reads ./.env and ./.env.local, which belong to the user's own project, and has no switch for it."""
    names = vars(sdk_module)
    reader = names["DaytonaEnvReader"]
    names["DaytonaEnvReader"] = _NoFiles
    try:
        yield
    finally:
        names["DaytonaEnvReader"] = reader
