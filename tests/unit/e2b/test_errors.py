"""What the SDK raises against what we make of it, class by class, with the SDK's own classes."""

import json

import e2b
import httpx
import pytest

from agentrl.api import (
    FileMissing,
    ImageUnavailable,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxThrottled,
    SandboxTransient,
)
from agentrl_e2b.errors import kind_of, may_have_worked, translate, translated

REQUEST = httpx.Request("POST", "http://127.0.0.1/")


def status(code, cls=e2b.SandboxException):
    error = cls(f"{code}: some words")
    error.status_code = code
    return error


def since(name):
    """A class that older versions of the SDK do not have."""
    return getattr(e2b, name, None) or pytest.skip(f"this SDK has no {name}")


def caused(error, cause):
    error.__cause__ = cause
    return error


# What is raised → the class when it may be sent twice, and when not.
TABLE = {
    "rate limit": (lambda: e2b.RateLimitException("429: slow down"), SandboxThrottled, SandboxThrottled),
    "429 by status": (lambda: status(429), SandboxThrottled, SandboxThrottled),
    "busy": (lambda: since("ServiceBusyException")("503"), SandboxTransient, SandboxTransient),
    "503 by status": (lambda: status(503), SandboxTransient, SandboxTransient),
    "500": (lambda: status(500), SandboxTransient, SandboxError),
    "502": (lambda: status(502), SandboxTransient, SandboxError),
    "504": (lambda: status(504), SandboxTransient, SandboxError),
    "400": (lambda: status(400), SandboxRefused, SandboxRefused),
    "403": (lambda: status(403), SandboxRefused, SandboxRefused),
    "409": (lambda: status(409), SandboxRefused, SandboxRefused),
    "status in words only": (lambda: e2b.SandboxException("404: template not found"), SandboxRefused, SandboxRefused),
    "no status": (lambda: e2b.SandboxException("strange"), SandboxTransient, SandboxError),
    "key": (lambda: e2b.AuthenticationException("401"), SandboxRefused, SandboxRefused),
    "not running": (lambda: since("SandboxNotRunningException")("x"), SandboxGone, SandboxGone),
    "no sandbox": (lambda: since("SandboxNotFoundException")("Sandbox i1 not found"), SandboxGone, SandboxGone),
    "old words": (lambda: e2b.TimeoutException("The sandbox was not found: …"), SandboxGone, SandboxGone),
    "unreachable": (lambda: since("SandboxUnreachableException")("cut"), SandboxTransient, SandboxError),
    "timeout": (lambda: e2b.TimeoutException("context deadline exceeded"), SandboxTransient, SandboxError),
    "no space": (lambda: e2b.NotEnoughSpaceException("507"), SandboxRefused, SandboxRefused),
    "bad argument": (lambda: e2b.InvalidArgumentException("cwd '/x' does not exist"), SandboxRefused, SandboxRefused),
    "no file": (lambda: e2b.FileNotFoundException("path '/x' does not exist"), FileMissing, FileMissing),
    "no template": (lambda: e2b.TemplateException("too old"), ImageUnavailable, ImageUnavailable),
    "no image": (lambda: e2b.BuildException("manifest unknown: debian:x"), ImageUnavailable, ImageUnavailable),
    "bad step": (lambda: e2b.BuildException("failed to run command: exit status 4"), SandboxRefused, SandboxRefused),
    "build refused busily": (lambda: e2b.BuildException("502: bad gateway"), SandboxTransient, SandboxError),
    "never connected": (lambda: httpx.ConnectError("refused", request=REQUEST), SandboxTransient, SandboxTransient),
    "cold burst": (
        lambda: httpx.WriteError("client error (Canceled): ALPN upgraded to HTTP/2", request=REQUEST),
        SandboxTransient,
        SandboxTransient,
    ),
    "write cut": (lambda: httpx.WriteError("broken pipe", request=REQUEST), SandboxTransient, SandboxError),
    "read cut": (lambda: httpx.ReadError("reset", request=REQUEST), SandboxTransient, SandboxError),
    "old h2": (lambda: httpx.LocalProtocolError("405", request=REQUEST), SandboxTransient, SandboxError),
    "read timeout": (lambda: httpx.ReadTimeout("slow", request=REQUEST), SandboxTransient, SandboxError),
    "no JSON": (lambda: json.JSONDecodeError("Expecting value", "<html>", 0), SandboxTransient, SandboxError),
    "no body": (lambda: Exception("Body of the request is None"), SandboxTransient, SandboxError),
    "no end": (lambda: Exception("Command ended without an end event"), SandboxTransient, SandboxError),
    "loop": (lambda: RuntimeError("Event loop is closed"), SandboxTransient, SandboxError),
    "refused inside": (
        lambda: caused(Exception("x"), ConnectionError("client error (Connect): tcp connect error")),
        SandboxTransient,
        SandboxTransient,
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_table(case):
    make, repeatable, single = TABLE[case]
    for may_repeat, expected in ((True, repeatable), (False, single)):
        ours = translate(make(), "doing it", repeatable=may_repeat)
        assert type(ours) is expected, (case, ours)
        assert str(make()).split(":")[0] in str(ours) and "doing it" in str(ours)


def test_every_public_exception_of_the_sdk_has_a_class():
    known = {
        name for name in dir(e2b) if isinstance(getattr(e2b, name), type) and issubclass(getattr(e2b, name), Exception)
    }
    assert {"RateLimitException", "TimeoutException"} <= known
    for name in known - {"CommandExitException"}:
        kind_of(getattr(e2b, name).__new__(getattr(e2b, name)))


def test_rpc_errors_that_come_through_unwrapped():
    connect = pytest.importorskip("connectrpc.errors")
    from connectrpc.code import Code

    refused = connect.ConnectError(Code.UNAVAILABLE, "Request failed: client error (Connect): tcp connect error")
    cut = connect.ConnectError(Code.UNAVAILABLE, "Request failed: client error (SendRequest): connection error")
    assert kind_of(refused) == "unsent"
    assert kind_of(cut) == "unknown"


def test_the_cause_is_chained_and_ours_pass_through():
    cause = e2b.RateLimitException("429: slow down")
    with pytest.raises(SandboxThrottled) as caught, translated("x", repeatable=True):
        raise cause
    assert caught.value.__cause__ is cause
    ours = SandboxGone("gone")
    with pytest.raises(SandboxGone) as caught, translated("x", repeatable=True):
        raise ours
    assert caught.value is ours


def test_what_may_have_worked():
    def raised(cause):
        with pytest.raises(SandboxError) as caught, translated("x", repeatable=True):
            raise cause
        return caught.value

    assert may_have_worked(raised(httpx.ReadTimeout("slow", request=REQUEST)))
    assert not may_have_worked(raised(httpx.ConnectError("refused", request=REQUEST)))
    assert not may_have_worked(raised(e2b.RateLimitException("429")))
    assert not may_have_worked(SandboxRefused("no key"))
