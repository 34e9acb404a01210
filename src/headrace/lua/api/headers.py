"""Status and header fields, of the answer and of the request.

Content-Type, Content-Length, Last-Modified and Location of the answer have fields of their own in the request.
Lists of fields cross as one string: name NUL value NUL name ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.times import http_date
from headrace.lua.api.process import parse_http_time

if TYPE_CHECKING:
    from headrace.edge.request import Request


_SET: Final = ord("=")
_STATUS: Final = ord("#")
_SPECIAL: Final = frozenset({b"content-type", b"content-length", b"location", b"last-modified"})
"""Fields with a life of their own."""


def change_fields(request: Request, changes: bytes) -> None:
    """What a run has set: `=name` NUL value NUL to set a field, `+name` for another one, `#` for the status."""
    parts = iter(changes.split(b"\0"))
    for name, value in zip(parts, parts, strict=False):
        kind = name[0]
        if kind == _SET and name[1:].lower() not in _SPECIAL:
            request.headers_out.set(name[1:], value)
        elif kind == _STATUS:
            request.status = int(value)
            request.err_status = 0
        else:
            _set_special(request, name[1:], value, override=kind == _SET)


def _set_special(request: Request, name: bytes, value: bytes, *, override: bool) -> None:
    lower = name.lower()
    if lower == b"content-type":
        request.content_type = value
    elif lower == b"content-length":
        request.content_length = int(value)
    elif lower == b"location":
        # A field of the list is sent as it is: what Lua sets is not made absolute, as in nginx.
        request.location_out = None
        request.headers_out.set(name, value)
    else:
        if lower == b"last-modified":
            # as a time where it is one, so that If-Modified-Since is looked at
            request.last_modified = parse_http_time(value)
            request.headers_out.remove(name)
            if request.last_modified is not None:
                return
        if override:
            request.headers_out.set(name, value)
        else:
            request.headers_out.add(name, value)


class HeadersApi:
    """requests: live requests by handle."""

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {
            "get_status": self.get_status,
            "get_header": self.get_header,
            "change_fields": self.change_fields,
            "clear_header": self.clear_header,
            "set_reason": self.set_reason,
            "bypass_if_checks": self.bypass_if_checks,
            "headers_out": self.headers_out,
            "headers_in": self.headers_in,
            "clear_header_in": self.clear_header_in,
            "add_header_in": self.add_header_in,
        }

    def get_status(self, request_id: int) -> int:
        """The status of the answer, 0 when nothing has set it; 9 for a client of HTTP/0.9."""
        request = self.requests[request_id]
        return request.err_status or request.status or (9 if request.exchange.head.version == 9 else 0)

    def get_header(self, request_id: int, name: bytes, sent: int = 0) -> bytes | None:
        """The values of a field, separated by NUL. sent: output has begun, so the default type is in force."""
        request = self.requests[request_id]
        lower = name.lower()
        if lower == b"content-type":
            if request.content_type is None and sent:
                return request.location.content_type_of(request.uri) or None
            return request.content_type or None
        if lower == b"content-length":
            return None if request.content_length is None else b"%d" % request.content_length
        if lower == b"location" and request.location_out is not None:
            return request.location_out
        if lower == b"last-modified" and request.last_modified is not None:
            return http_date(request.last_modified)
        return b"\0".join(request.headers_out.get_all(name)) if request.headers_out.get(name) is not None else None

    def change_fields(self, request_id: int, changes: bytes) -> None:
        """See the function."""
        request = self.requests.get(request_id)
        if request is not None:
            change_fields(request, changes)

    def clear_header(self, request_id: int, name: bytes) -> None:
        """Remove all fields of a name."""
        request = self.requests[request_id]
        lower = name.lower()
        if lower == b"content-type":
            request.content_type = b""
        elif lower == b"content-length":
            request.content_length = None
        else:
            if lower == b"location":
                request.location_out = None
            if lower == b"last-modified":
                request.last_modified = None
            request.headers_out.remove(name)
            if lower == b"date":
                request.headers_out.set(b"Date", b"")  # none, instead of the one that every answer has

    def set_reason(self, request_id: int, reason: bytes) -> None:
        """The words behind the status; they end with their line."""
        self.requests[request_id].reason = reason.translate(None, b"\r\n\0")

    def bypass_if_checks(self, request_id: int) -> None:
        """The conditions of the client (If-Match and its like) do not matter for this answer."""
        self.requests[request_id].unconditional = True

    def headers_out(self, request_id: int) -> bytes:
        """All fields of the answer so far."""
        request = self.requests[request_id]
        fields = list(request.headers_out)
        for name in (b"content-type", b"content-length", b"location", b"last-modified"):
            value = self.get_header(request_id, name)
            if value is not None and request.headers_out.get(name) is None:
                fields.append((name, value))
        if request.headers_out.get(b"connection") is None:
            fields.append((b"connection", b"keep-alive" if request.exchange.keep_alive else b"close"))
        if request.chunked:
            fields.append((b"transfer-encoding", b"chunked"))
        return b"".join(b"%b\0%b\0" % field for field in fields)

    def fields_of(self, request: Request) -> bytes:
        """All fields of the answer of a subrequest, with the usual spelling of their names."""
        kept = request.kept_headers
        out = b"" if not kept else b"".join([b"%b\0%b\0" % field for field in kept])
        if request.content_type:
            out += b"Content-Type\0%b\0" % request.content_type
        if request.content_length is not None:
            out += b"Content-Length\0%d\0" % request.content_length
        if request.location_out is not None:
            out += b"Location\0%b\0" % request.location_out
        if request.last_modified is not None:
            out += b"Last-Modified\0%b\0" % http_date(request.last_modified)
        return out

    def headers_in(self, request_id: int) -> bytes:
        """All fields of the request."""
        return b"".join(b"%b\0%b\0" % field for field in self.requests[request_id].headers_in())

    def clear_header_in(self, request_id: int, name: bytes) -> None:
        """Remove all request fields of a name."""
        self.requests[request_id].change_headers_in().set_all(name, ())

    def add_header_in(self, request_id: int, name: bytes, value: bytes) -> None:
        """Append a field to the request."""
        self.requests[request_id].change_headers_in().add(name, value)
