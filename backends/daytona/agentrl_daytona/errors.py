"""What an exception of the Daytona SDK means for us: one table, status first, then text, then class.

Daytona says 400 for a quota that is used up and for a machine that is stopped; downloads lose their status but for the
text; versions of the SDK differ in classes. So the class comes last. Not here: who retries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp
from daytona import DaytonaError
from daytona_api_client_async.exceptions import OpenApiException

from agentrl.api import (
    FileMissing,
    ImageUnavailable,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxThrottled,
    SandboxTransient,
)

SDK_ERRORS = (DaytonaError, OpenApiException, aiohttp.ClientError, OSError)  # TimeoutError is an OSError
QUOTA_WAIT_SEC = 60.0
TEXT_CAP = 500

_STATUS_IN_TEXT = re.compile(r"^(?:Failed to [^:]+: )*([45]\d\d)\b")
_QUOTA = re.compile(r"total (?:disk|cpu|memory|gpu|storage)\b.*\b(?:limit|quota) exceeded", re.I)
_SNAPSHOT_QUOTA = re.compile(r"snapshot (?:quota|limit)|(?:quota|limit)[^.]* snapshots", re.I)
_NO_RUNNER = re.compile(r"no available runners?", re.I)
_NOT_RUNNING = re.compile(
    r"is the sandbox started|sandbox (?:\S+ )?is (?:not (?:started|running)|stopped|destroy)", re.I
)
_NO_IMAGE = re.compile(
    r"snapshot \S+ (?:was )?not found|build_failed|(?:pull|find|invalid)\w* (?:the )?image|image \S* ?(?:was )?not found|manifest unknown",
    re.I,
)
_NO_FILE = re.compile(r"no such file or directory|file not found", re.I)
_ERROR_STATE = re.compile(r"entered error state|failed to start with state|failed to create snapshot \S+, reason", re.I)


def translated(
    error: BaseException, doing: str, *, repeatable: bool, missing: type[SandboxError] = SandboxGone
) -> SandboxError:
    """The error to raise for ``error``, met while ``doing`` something.

    ``repeatable``: doing it twice does no harm, so that what may have happened already counts as transient. ``missing``: what a 404 means.
    """
    if isinstance(error, SandboxError):
        return error
    status, text = _status(error), str(error) or type(error).__name__
    said = f"{doing}: {text[:TEXT_CAP]}"
    unknown = SandboxTransient if repeatable else SandboxError
    if status is not None:
        return _by_status(status, text, said, _headers(error), unknown, missing)
    if _ERROR_STATE.search(text):
        return ImageUnavailable(said) if _NO_IMAGE.search(text) else SandboxTransient(said)
    return FileMissing(said) if _NO_FILE.search(text) else _by_class(error, said, unknown)


def refused_for_sure(error: BaseException) -> bool:
    """Whether the provider did nothing: it said 4xx but for a timeout, or never saw the request."""
    status = _status(error)
    return (status is not None and 400 <= status < 500 and status != 408) or _never_left(error)


def conflicts(error: BaseException) -> bool:
    """Whether somebody else has made the thing of that name."""
    return _status(error) == 409


def not_found(error: BaseException) -> bool:
    """Whether there is no such thing."""
    return _status(error) == 404


def _by_status(
    status: int,
    text: str,
    said: str,
    headers: Mapping[str, str],
    unknown: type[SandboxError],
    missing: type[SandboxError],
) -> SandboxError:
    if status == 429:
        return SandboxThrottled(said, _retry_after(headers))
    if status == 503:
        return SandboxTransient(said)
    if _QUOTA.search(text):
        return SandboxThrottled(f"{said} (stopped machines keep their disk: delete some)", QUOTA_WAIT_SEC)
    if _SNAPSHOT_QUOTA.search(text) and status < 500:
        return SandboxRefused(f"{said}: delete snapshots that are not needed, ours are called agentrl-…")
    if status == 401:
        return SandboxRefused(f"{said}: set DAYTONA_API_KEY to a valid key of the account at DAYTONA_API_URL")
    if status == 403:
        return SandboxRefused(f"{said}: the key in DAYTONA_API_KEY may not do this")
    if status == 404:
        return missing(said)
    if status in (400, 409, 410, 422):
        return _by_refusal(
            text, said, SandboxTransient if status == 409 and unknown is SandboxTransient else SandboxRefused
        )
    return unknown(said)


def _by_refusal(text: str, said: str, otherwise: type[SandboxError]) -> SandboxError:
    """400, 410, 422, and 409: a name that is taken, or a machine that is busy; names are new each time, so that passes."""
    if _NOT_RUNNING.search(text):
        return SandboxGone(said)
    if _NO_RUNNER.search(text):
        return SandboxThrottled(said, QUOTA_WAIT_SEC)
    return ImageUnavailable(said) if _NO_IMAGE.search(text) else otherwise(said)


def _by_class(error: BaseException, said: str, unknown: type[SandboxError]) -> SandboxError:
    name = type(error).__name__
    if name == "DaytonaQueueTimeoutError":
        return SandboxThrottled(f"{said} (no machine was free for it)", QUOTA_WAIT_SEC)
    if name == "DaytonaSpotEvictedError":
        return SandboxGone(said)
    if name == "DaytonaFileNotFoundError":
        return FileMissing(said)
    if _never_left(error):
        return SandboxTransient(f"{said}: check DAYTONA_API_URL if this goes on")
    if (
        isinstance(error, TimeoutError | aiohttp.ClientError | ConnectionError)
        or "Timeout" in name
        or "Connection" in name
    ):
        return unknown(said)
    return SandboxError(said)


def _status(error: BaseException) -> int | None:
    """Of SDK errors, of the generated clients' errors, and of the text of those that lost it."""
    for field in ("status_code", "status"):
        value = getattr(error, field, None)
        if isinstance(value, int) and value >= 400:
            return value
    found = _STATUS_IN_TEXT.search(str(error))
    return int(found[1]) if found else None


def _headers(error: BaseException) -> Mapping[str, str]:
    headers = getattr(error, "headers", None) or {}
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The longest wait that any of its throttlers asks for."""
    wishes = [value for name, value in headers.items() if name.startswith("retry-after")]
    seconds = [float(value) for value in wishes if re.fullmatch(r"\d+(?:\.\d+)?", value)]
    return max(seconds, default=None)


def _never_left(error: BaseException | None) -> bool:
    """Whether the connection itself failed, so that nobody has seen the request."""
    while error is not None:
        if isinstance(error, aiohttp.ClientConnectorError):
            return True
        error = error.__cause__ or error.__context__
    return False
