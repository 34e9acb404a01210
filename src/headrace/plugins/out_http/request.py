"""A request's bytes: the head up to the body's length, and the body itself.

The head of an endpoint is built once and kept: what differs from chunk to chunk is Content-Length
and, with AWS signatures, a few fields, which are appended.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from headrace.errors import Unrecoverable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.plugins.out_http.endpoint import Endpoint

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE: Final = re.compile(r"[\r\n\x00]")

FRAMING: Final = frozenset(
    {"connection", "content-length", "transfer-encoding", "keep-alive", "te", "trailer", "upgrade"}
)
"""Fields that say where a message ends or what becomes of its connection: set here only."""

CONTENT_TYPES: Final[Mapping[str, str]] = {
    "json": "application/x-ndjson",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "ltsv": "text/tab-separated-values",
    "msgpack": "application/x-msgpack",
    "out_file": "text/plain",
    "single_value": "text/plain",
    "stdout": "text/plain",
    "hash": "text/plain",
}
"""formatter -> Content-Type (https://docs.fluentd.org/output/http#content_type)."""

_GZIP_LEVEL: Final = 6


def is_field_name(name: str) -> bool:
    """Whether a header field can have this name (RFC 9110 5.6.2)."""
    return _NAME.fullmatch(name) is not None


def is_field_value(value: str) -> bool:
    """Whether a header field can have this value (RFC 9110 5.5)."""
    return _BAD_VALUE.search(value) is None


def field(name: str, value: str) -> bytes:
    """One header line. Raises Unrecoverable where the value would end the line: no retry mends that."""
    if _BAD_VALUE.search(value):
        raise Unrecoverable(f"value of header {name} contains a line break or NUL: {value!r}", kind="header")
    return f"{name}: {value}\r\n".encode("utf-8", "surrogateescape")


def build_head(
    method: str,
    endpoint: Endpoint,
    fields: Iterable[tuple[str, str]],
    *,
    keep_alive: bool,
    forwarded: bool = False,
    authorization: str | None = None,
    proxy_authorization: str | None = None,
) -> bytes:
    """The head up to and including "Content-Length: ".

    fields: later ones replace earlier ones of the same name. forwarded: the request is written to a
    proxy that fetches it, so the target is absolute (RFC 9112 3.2.2).
    """
    named: dict[str, bytes] = {
        "host": b"Host: " + endpoint.authority + b"\r\n",
        "user-agent": b"User-Agent: headrace\r\n",
        "accept": b"Accept: */*\r\n",
    }
    for name, value in fields:
        named[name.lower()] = field(name, value)
    for name, credentials in (("Authorization", authorization), ("Proxy-Authorization", proxy_authorization)):
        if credentials is not None:
            named[name.lower()] = field(name, credentials)
    # keep-alive is HTTP/1.1's default, but servers that answer as HTTP/1.0 keep only what is asked for.
    connection = b"Connection: keep-alive\r\n" if keep_alive else b"Connection: close\r\n"
    target = endpoint.absolute if forwarded else endpoint.target
    line = method.encode() + b" " + target + b" HTTP/1.1\r\n"
    return line + b"".join(named.values()) + connection + b"Content-Length: "


def gzip_member(body: bytes) -> bytes:
    """One gzip member (RFC 1952) without name and time."""
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
