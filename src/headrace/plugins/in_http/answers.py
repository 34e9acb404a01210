"""The bytes of answers: status lines, texts and fields as Fluentd's source writes them."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    200: b"OK",
    204: b"No Content",
    400: b"Bad Request",
    403: b"Forbidden",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    411: b"Length Required",
    413: b"Request Entity Too Large",
    414: b"URI Too Long",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
    505: b"HTTP Version Not Supported",
}

EMPTY_GIF: Final = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)
"""One transparent pixel."""

TEXT: Final = b"Content-Type: text/plain\r\n"
GIF: Final = b"Content-Type: image/gif\r\n"


def head(status: int, fields: bytes, length: int | None, *, keep_alive: bool) -> bytes:
    """The head of an answer. length: of the body; None where none can follow (204)."""
    connection = b"Connection: Keep-Alive\r\n" if keep_alive else b"Connection: close\r\n"
    size = b"" if length is None else b"Content-Length: %d\r\n" % length
    return b"HTTP/1.1 %d %s\r\n" % (status, REASONS.get(status, b"Error")) + fields + connection + size + b"\r\n"


def told(status: int, reason: str) -> bytes:
    """The body of an error's answer."""
    if status == 413:
        return b"Too large"
    text = reason.encode("utf-8", "replace")
    return b"%d %s\n%s\n" % (status, REASONS.get(status, b"Error"), text)
