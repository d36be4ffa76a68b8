"""How E2B says no: the control plane and envd in JSON with a number, its RPCs in Connect's words."""

from __future__ import annotations

from aiohttp import web

_STATUS = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "resource_exhausted": 429,
    "internal": 500,
    "unimplemented": 501,
    "unavailable": 503,
}


class ApiError(Exception):
    """Becomes ``{"code": status, "message": …}`` with that HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)

    def response(self) -> web.Response:
        """As HTTP."""
        return web.json_response({"code": self.status, "message": self.message}, status=self.status)


class RpcError(Exception):
    """Becomes ``{"code": word, "message": …}``: a response of a unary call, the last frame of a stream."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)

    def body(self) -> dict[str, str]:
        """As Connect writes it."""
        return {"code": self.code, "message": self.message}

    def response(self) -> web.Response:
        """As HTTP."""
        return web.json_response(self.body(), status=_STATUS.get(self.code, 500))


class Words:
    """E2B's refusals, for :func:`agentrl.testing.faulty.faulty`."""

    def error(self, status: int, message: str) -> web.Response:
        """A failure with ``status``."""
        return ApiError(status, message).response()

    def quota(self, message: str) -> web.Response:
        """Too many machines at once: a 429 that no short wait cures."""
        text = f"you have reached the maximum number of concurrent E2B sandboxes (20): {message}"
        return ApiError(429, text).response()


def gone(sandbox_id: str) -> web.Response:
    """What the proxy in front of all machines says for one that does not exist."""
    body = {"sandboxId": sandbox_id, "message": "The sandbox was not found", "code": 502}
    return web.json_response(body, status=502)
