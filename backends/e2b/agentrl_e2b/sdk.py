"""The SDK, loaded when the first request is due, with our settings bound to every call.

Not here: what its exceptions mean (:mod:`agentrl_e2b.errors`).
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from agentrl.api import SandboxRefused
from agentrl_e2b.settings import E2BSettings

if TYPE_CHECKING:
    from e2b import AsyncSandbox, AsyncTemplate

EXIT_SEC = 0.3
DOMAIN = "e2b.app"


@cache
def _at_exit() -> None:
    """The SDK's transport has threads of its own (in Rust). Those that still want the interpreter when it goes abort the
    whole process: after the last request they get a moment."""
    atexit.register(time.sleep, EXIT_SEC)


class Sdk:
    """The classes of the SDK and the options that each call to them gets."""

    def __init__(self, settings: E2BSettings) -> None:
        self._settings = settings

    @property
    def missing_key(self) -> str | None:
        """A sentence when there is no key."""
        if self._settings.api_key.get_secret_value():
            return None
        return "E2B needs a key: set E2B_API_KEY, or E2B_API_KEY_FILE to a file that holds it"

    @property
    def sandboxes(self) -> type[AsyncSandbox]:
        """Raises: SandboxRefused without a key."""
        if self.missing_key is not None:
            raise SandboxRefused(self.missing_key)
        import e2b

        _at_exit()
        return e2b.AsyncSandbox

    @property
    def templates(self) -> type[AsyncTemplate]:
        """Raises: SandboxRefused without a key."""
        if self.missing_key is not None:
            raise SandboxRefused(self.missing_key)
        import e2b

        _at_exit()
        return e2b.AsyncTemplate

    def options(self, request_sec: float | None = None) -> dict[str, Any]:
        """For one call: as far as this version of the SDK knows them."""
        from e2b.connection_config import ApiParams

        settings = self._settings
        wanted = {
            "api_key": settings.api_key.get_secret_value(),
            "validate_api_key": False,  # gateways of one's own have keys of their own form
            "domain": settings.domain or None,
            "api_url": settings.api_url or None,
            "sandbox_url": settings.sandbox_url or None,
            "http_version": settings.http_version,
            "request_timeout": request_sec or settings.request_sec,
            "retries": 0,  # retries have one owner, and that is the lease
            "debug": False,  # E2B_DEBUG makes create and kill do nothing
        }
        return {
            name: value for name, value in wanted.items() if name in ApiParams.__annotations__ and value is not None
        }

    def known(self, function: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of ``options`` that ``function`` of this version takes by name."""
        import inspect

        return {name: value for name, value in options.items() if name in inspect.signature(function).parameters}

    @property
    def api(self) -> str:
        """The address of the API."""
        return (self._settings.api_url or f"https://api.{self._settings.domain or DOMAIN}").rstrip("/")
