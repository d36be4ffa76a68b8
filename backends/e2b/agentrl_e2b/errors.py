"""What the SDK raises, and what that means for us.

One table for all versions of the SDK, by names: older ones lack some classes, and transport errors of three libraries come through
unwrapped. What it means for a caller depends on one more thing: whether the request may be sent twice (``repeatable``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from agentrl.api import (
    AgentrlError,
    FileMissing,
    ImageUnavailable,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxThrottled,
    SandboxTransient,
)

Kind = Literal["throttled", "unsent", "unknown", "gone", "refused", "key", "missing", "template", "build", "status"]
"""``unsent``: the request changed nothing; ``unknown``: it may have; ``status``: the HTTP status decides."""

TABLE: Mapping[str, Kind] = {
    "e2b.RateLimitException": "throttled",
    "e2b.ServiceBusyException": "unsent",
    "e2b.AuthenticationException": "key",
    "e2b.SandboxNotRunningException": "gone",
    "e2b.SandboxNotFoundException": "gone",
    "e2b.SandboxUnreachableException": "unknown",
    "e2b.TimeoutException": "unknown",
    "e2b.NotEnoughSpaceException": "refused",
    "e2b.InvalidArgumentException": "refused",
    "e2b.FileNotFoundException": "missing",
    "e2b.NotFoundException": "missing",
    "e2b.TemplateException": "template",
    "e2b.BuildException": "build",
    "e2b.SandboxException": "status",
    "httpx.ConnectError": "unsent",
    "httpx.ConnectTimeout": "unsent",
    "httpx.PoolTimeout": "unsent",
    "httpx.TransportError": "unknown",
    "httpcore.ConnectError": "unsent",
    "connectrpc.ConnectError": "unknown",
    "e2b_connect.ConnectException": "unknown",
    "json.JSONDecodeError": "unknown",
    "builtins.ConnectionRefusedError": "unsent",
    "builtins.Exception": "unknown",
}
_BY_STATUS: Mapping[int, Kind] = {401: "key", 429: "throttled", 503: "unsent"}
# The Rust transport of the SDK says only in words how far it came.
_UNSENT = re.compile(r"client error \(Connect\)|\(Canceled\): ALPN|dns error", re.IGNORECASE)
_GONE = re.compile(r"sandbox was not found|sandbox .{0,80}not found", re.IGNORECASE)
_NO_IMAGE = re.compile(r"manifest|pull|image|registry|not found|denied", re.IGNORECASE)
_LONGEST = 1000


def kind_of(error: BaseException) -> Kind:
    """The line of the table that fits ``error``."""
    kind = next(kind for kind in map(TABLE.get, _names(error)) if kind) if isinstance(error, Exception) else "unknown"
    if kind in ("unknown", "missing") and _GONE.search(str(error)):
        return "gone"  # older SDKs know no class for it
    if kind == "unknown" and _UNSENT.search(_chain(error)):
        return "unsent"
    if kind in ("status", "build"):
        return _by_status(error, "unknown" if kind == "status" else "build")
    return kind


def _names(error: BaseException) -> Iterator[str]:
    for cls in type(error).__mro__:
        yield f"{cls.__module__.partition('.')[0]}.{cls.__name__}"


def _chain(error: BaseException | None) -> str:
    said = []
    while error is not None:
        said.append(str(error))
        error = error.__cause__
    return "\n".join(said)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that led to ``error``; older SDKs have it only in words."""
    status = getattr(error, "status_code", None)
    spelled = re.match(r"(\d{3}): ", str(error))
    return status or (int(spelled[1]) if spelled else None)


def _by_status(error: BaseException, otherwise: Kind) -> Kind:
    status = status_of(error)
    if status is None:
        return otherwise
    return _BY_STATUS.get(status, "refused" if 400 <= status < 500 else "unknown")


def translate(error: Exception, doing: str, *, repeatable: bool) -> SandboxError:
    """Our error for the SDK's, with ``doing`` in front. ``repeatable``: whether doing it twice does no harm."""
    text = f"{doing}: {type(error).__name__}: {str(error).strip()[-_LONGEST:]}"
    match kind_of(error):
        case "throttled":
            return SandboxThrottled(f"E2B asks to slow down ({text})")
        case "unsent":
            return SandboxTransient(f"E2B did not take the request ({text})")
        case "gone":
            return SandboxGone(text)
        case "missing":
            return FileMissing(text)
        case "key":
            hint = "check E2B_API_KEY; an unknown user of a machine, SWE_E2B_USER, reads the same"
            return SandboxRefused(f"E2B does not accept the key: {hint} ({text})")
        case "template":
            return ImageUnavailable(text)
        case "build":
            return ImageUnavailable(text) if _NO_IMAGE.search(str(error)) else SandboxRefused(text)
        case "refused" | "status":
            return SandboxRefused(text)
        case "unknown":
            return (
                SandboxTransient(text) if repeatable else SandboxError(f"{text} (it may have been done all the same)")
            )


def may_have_worked(error: BaseException) -> bool:
    """Whether what failed with ``error``, one of ours, may have been done all the same."""
    return error.__cause__ is not None and kind_of(error.__cause__) == "unknown"


@contextmanager
def translated(doing: str, *, repeatable: bool) -> Iterator[None]:
    """Whatever the SDK raises in the block becomes one of ours. Raises: SandboxError."""
    try:
        yield
    except AgentrlError:
        raise
    except Exception as error:
        raise translate(error, doing, repeatable=repeatable) from error
