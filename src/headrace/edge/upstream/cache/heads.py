"""Heads of kept answers: how they are stored, renewed, told apart, and what conditions they answer. No I/O."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from headrace.core.http1.parse import parse_response_head
from headrace.edge.ranges import http_time, tag_matches

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request


_RENEWED: Final = frozenset((b"date", b"expires", b"cache-control", b"x-accel-expires", b"etag", b"vary"))


def set_modified(request: Request, head: ResponseHead) -> None:
    """Let conditions of the client count: the gateway answers them for what it keeps."""
    text = head.header(b"last-modified")
    at = http_time(text) if text is not None else None
    if at is not None and head.status == 200:
        request.last_modified = at
        request.headers_out.remove(b"Last-Modified")
        return
    wanted = request.header_in(b"if-none-match") if head.status == 200 else None
    if wanted is not None and request.header_in(b"if-modified-since") is None:
        tag = head.header(b"etag")
        if tag is not None and tag_matches(wanted, tag, weak=True):
            request.status, request.content_length, request.reason = 304, None, b""


def variant_of(request: Request, vary: str) -> str:
    """What distinguishes the request for an answer that varies by these fields."""
    parts = []
    for name in sorted({word.strip().lower() for word in vary.split(",")}):
        value = request.header_in(name.encode("latin-1")) or b""
        parts.append(name.encode() + b":" + b",".join(word.strip() for word in value.split(b",") if word.strip()))
    return hashlib.md5(b"\n".join(parts), usedforsecurity=False).hexdigest()


def kept_head(head: ResponseHead) -> bytes:
    """The head as it is stored: framing belongs to the connection that it came on."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason)]
    skip = (b"transfer-encoding", b"connection", b"keep-alive", b"content-length")
    lines += [b"%b: %b\r\n" % field for field in head.headers() if field[0].lower() not in skip]
    return b"".join((*lines, b"\r\n"))


def merged_head(old: ResponseHead, new: ResponseHead) -> bytes:
    """The stored head with the fields that a 304 renews (RFC 9111 3.2)."""
    renewed = {name.lower() for name, _ in new.headers()} & _RENEWED
    fields = [field for field in old.headers() if field[0].lower() not in renewed]
    fields += [field for field in new.headers() if field[0].lower() in renewed]
    text = b"".join(b"%b: %b\r\n" % field for field in fields)
    return kept_head(parse_response_head(b"HTTP/1.1 %d %b\r\n%b\r\n" % (old.status, old.reason, text), b"GET"))
