"""What the SDK raises against what we make of it, class by class, with the SDK's own classes."""

import aiohttp
import daytona
import pytest
from daytona_api_client_async.exceptions import ApiException

from agentrl.api import (
    FileMissing,
    ImageUnavailable,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxThrottled,
    SandboxTransient,
)
from agentrl_daytona.errors import QUOTA_WAIT_SEC, refused_for_sure, translated


def error(text, status=None, kind="DaytonaError", cause=None, **more):
    """An error of the SDK; versions differ in which classes they have, and then say it by status."""
    cls = getattr(daytona, kind, None if status is None else daytona.DaytonaError) or pytest.skip(f"no {kind}")
    made = cls(text, status_code=status, **more)
    made.__cause__ = cause
    return made


def unconnected():
    return aiohttp.ClientConnectorError(
        aiohttp.client_reqrep.ConnectionKey("h", 1, False, True, None, None, None), OSError("x")
    )


# What is raised → the class when it may be sent twice, and when not.
TABLE = {
    "rate limit": (lambda: error("slow", 429, "DaytonaRateLimitError"), SandboxThrottled, SandboxThrottled),
    "500": (lambda: error("x", 500, "DaytonaInternalServerError"), SandboxTransient, SandboxError),
    "502": (lambda: error("x", 502, "DaytonaBadGatewayError"), SandboxTransient, SandboxError),
    "503": (lambda: error("x", 503, "DaytonaServiceUnavailableError"), SandboxTransient, SandboxTransient),
    "504": (lambda: error("x", 504, "DaytonaTimeoutError"), SandboxTransient, SandboxError),
    "command timeout": (lambda: error("x", 408, "DaytonaTimeoutError"), SandboxTransient, SandboxError),
    "command timeout of old": (lambda: error("x", 408), SandboxTransient, SandboxError),
    "client timeout": (lambda: error("x", None, "DaytonaTimeoutError"), SandboxTransient, SandboxError),
    "our timeout": (lambda: TimeoutError(), SandboxTransient, SandboxError),
    "read timeout": (lambda: error("x", None, "DaytonaConnectionTimeoutError"), SandboxTransient, SandboxError),
    "cut": (lambda: error("Server disconnected", None, "DaytonaConnectionError"), SandboxTransient, SandboxError),
    "never connected": (
        lambda: error("x", None, "DaytonaConnectionError", cause=unconnected()),
        SandboxTransient,
        SandboxTransient,
    ),
    "not found": (lambda: error("x", 404, "DaytonaNotFoundError"), SandboxGone, SandboxGone),
    "raw not found": (lambda: ApiException(status=404, reason="x"), SandboxGone, SandboxGone),
    "no machine was free": (lambda: error("x", None, "DaytonaQueueTimeoutError"), SandboxThrottled, SandboxThrottled),
    "evicted": (lambda: error("x", None, "DaytonaSpotEvictedError"), SandboxGone, SandboxGone),
    "bad request": (lambda: error("command is required", 400, "DaytonaBadRequestError"), SandboxRefused, SandboxRefused),
    "disk quota": (
        lambda: error("Failed to create sandbox: Total disk limit exceeded. Maximum allowed: 30GiB", 400),
        SandboxThrottled,
        SandboxThrottled,
    ),
    "memory quota": (lambda: error("Total memory limit exceeded. Maximum allowed: 20", 400), SandboxThrottled, SandboxThrottled),
    "snapshot quota": (lambda: error("Snapshot quota exceeded. Maximum allowed: 100", 400), SandboxRefused, SandboxRefused),
    "no runner": (lambda: error("No available runners", 400), SandboxThrottled, SandboxThrottled),
    "stopped": (lambda: error("no IP address found. Is the Sandbox started?", 400), SandboxGone, SandboxGone),
    "unauthorized": (lambda: error("x", 401, "DaytonaAuthenticationError"), SandboxRefused, SandboxRefused),
    "forbidden": (lambda: error("x", 403), SandboxRefused, SandboxRefused),
    "conflict": (lambda: error("x", 409, "DaytonaConflictError"), SandboxTransient, SandboxRefused),
    "gone": (lambda: error("x", 410), SandboxRefused, SandboxRefused),
    "unprocessable": (lambda: error("x", 422), SandboxRefused, SandboxRefused),
    "upload refused": (lambda: error("Failed to upload files: 502: bad", 502), SandboxTransient, SandboxError),
    "download without status": (
        lambda: error("Failed to download file: Failed to download files: 502, message='Bad Gateway', url='http://h'"),
        SandboxTransient,
        SandboxError,
    ),
    "cut download": (
        lambda: error("Failed to download files: Response payload is not completed: <ContentLengthError: 400, message='x'>",
                      None, "DaytonaConnectionError"),
        SandboxTransient,
        SandboxError,
    ),
    "download refused": (
        lambda: error("Failed to download files: 429, message='Too Many Requests', url='http://h'"),
        SandboxThrottled,
        SandboxThrottled,
    ),
    "no file": (lambda: error("Failed to download file: open /x: No such file or directory"), FileMissing, FileMissing),
    "no image": (
        lambda: error("Sandbox i1 entered error state: SandboxState.BUILD_FAILED, error reason: failed to pull image: manifest unknown"),
        ImageUnavailable,
        ImageUnavailable,
    ),
    "did not start": (lambda: error("Sandbox i1 failed to start with state: error, error reason: oom"), SandboxTransient, SandboxTransient),
    "strange": (lambda: error("1 validation error for Sandbox"), SandboxError, SandboxError),
    "ours": (lambda: SandboxGone("x"), SandboxGone, SandboxGone),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_each_class(case):
    make, repeatable, once = TABLE[case]
    assert type(translated(make(), "do it", repeatable=True)) is repeatable
    assert type(translated(make(), "do it", repeatable=False)) is once


def test_what_is_missing_depends_on_what_was_asked_for():
    for missing in (ImageUnavailable, FileMissing):
        assert type(translated(error("x", 404), "do it", repeatable=True, missing=missing)) is missing


def test_the_message_says_what_was_done_and_what_to_do():
    assert "create a machine: Invalid credentials" in str(
        translated(error("Invalid credentials", 401), "create a machine", repeatable=True)
    )
    assert "DAYTONA_API_KEY" in str(translated(error("x", 401), "do it", repeatable=True))
    assert len(str(translated(error("x" * 100_000, 400), "do it", repeatable=True))) < 1000


@pytest.mark.parametrize(
    ("headers", "wish"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-sandbox-create": "12", "Retry-After": "3"}, 12.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_wish_to_slow_down_is_kept(headers, wish):
    assert translated(error("x", 429, headers=headers), "do it", repeatable=True).retry_after_sec == wish


def test_a_quota_that_is_used_up_takes_longer():
    quota = translated(error("Total CPU limit exceeded. Maximum allowed: 10", 400), "do it", repeatable=True)
    assert quota.retry_after_sec == QUOTA_WAIT_SEC


@pytest.mark.parametrize(
    ("status", "sure"), [(400, True), (401, True), (409, True), (429, True), (408, False), (500, False), (502, False), (None, False)]
)  # fmt: skip
def test_what_certainly_did_nothing(status, sure):
    assert refused_for_sure(error("x", status)) is sure
    assert refused_for_sure(error("x", None, cause=unconnected()))
