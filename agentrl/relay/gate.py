"""What of a connection that comes out of a sandbox may go on to the gateway: requests for paths of one session.

The bytes pass as they are; only the heads of requests are read. What could be read in two ways is refused. Not here:
whether a session's token is valid, which is the gateway's business.
"""

from __future__ import annotations

import re

from agentrl.relay.inside.carry import Refused

MAX_HEAD = 64 << 10
_ANSWER = b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})(;[^\r\n]*)?")


class Gate:
    """Watches one connection. ``root``: the path below which everything is allowed, such as ``/s/token``."""

    def __init__(self, root: str) -> None:
        path = re.escape(root.encode()) + rb"(/[A-Za-z0-9_.~:/-]*)?(\?[!-~]*)?"
        self._request = re.compile(rb"[A-Z]{3,10} (" + path + rb") HTTP/1\.[01]")
        self._seen = bytearray()
        self._body = 0
        self._chunked = False

    def admit(self, data: bytes) -> bytes:
        """The part of ``data`` that may go on now. Raises: Refused."""
        self._seen += data
        passed = bytearray()
        while part := self._next():
            passed += part
        return bytes(passed)

    def _next(self) -> bytes:
        """The next piece that is understood, or nothing."""
        if self._body:
            part = self._take(min(self._body, len(self._seen)))
            self._body -= len(part)
            return part
        return self._chunk() if self._chunked else self._head()

    def _head(self) -> bytes:
        head = self._until(b"\r\n\r\n", MAX_HEAD)
        if not head:
            return b""
        line, *lines = head[:-4].split(b"\r\n")
        if not (match := self._request.fullmatch(line)) or b".." in match[1]:
            raise _refused(b"403 Forbidden", b"only this session's own URL is reached from here\n")
        fields = [_FIELD.fullmatch(line) for line in lines]
        lengths = [field[2].rstrip() for field in fields if field and field[1].lower() == b"content-length"]
        codings = [field[2].rstrip().lower() for field in fields if field and field[1].lower() == b"transfer-encoding"]
        if None in fields or len(lengths) + len(codings) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise _refused(b"400 Bad Request", b"a request that could be read in two ways\n")
        if codings not in ([], [b"chunked"]):
            raise _refused(b"501 Not Implemented", b"this transfer encoding is not known here\n")
        self._body, self._chunked = int(lengths[0]) if lengths else 0, bool(codings)
        return head

    def _chunk(self) -> bytes:
        """The line before a chunk, whose end counts as part of it; behind the last one nothing may come but the end."""
        line = self._until(b"\r\n", MAX_HEAD)
        if not line:
            return b""
        if not (match := _SIZE.fullmatch(line[:-2])):
            raise _refused(b"400 Bad Request", b"a chunk without a size\n")
        if size := int(match[1], 16):
            self._body = size + 2
            return line
        if len(self._seen) < 2:
            self._seen[:0] = line
            return b""
        if self._take(2) != b"\r\n":
            raise _refused(b"400 Bad Request", b"fields behind a body\n")
        self._chunked = False
        return line + b"\r\n"

    def _until(self, mark: bytes, limit: int) -> bytes:
        end = self._seen.find(mark)
        if end < 0 and len(self._seen) > limit:
            raise _refused(b"431 Request Header Fields Too Large", b"more than a request begins with\n")
        return self._take(end + len(mark)) if end >= 0 else b""

    def _take(self, size: int) -> bytes:
        part = bytes(self._seen[:size])
        del self._seen[:size]
        return part


def _refused(status: bytes, reason: bytes) -> Refused:
    return Refused(_ANSWER % (status, len(reason), reason))
