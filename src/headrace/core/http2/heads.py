"""Heads in both directions.

Header lists of a client become the RequestHead that HTTP/1 has too: what is malformed (RFC 9113 8.2, 8.3) is a 400 of
this request, as in nginx, and the decoder's state stays right. Answers come as the text that HTTP/1 would send; their
blocks use the static table only, so that equal heads have equal blocks, which are kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.core.http1.events import RequestHead
from headrace.core.http1.request import check_target, read_fields, show
from headrace.core.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Fault
from headrace.core.http2.hpack import BadBlock, BlockDecoder, Field, encode_fields
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.core.http1.request import HeadRules
    from headrace.core.http1.settings import ServerSettings

_PSEUDO: Final = frozenset({b":method", b":path", b":scheme", b":authority"})
_METHOD: Final = re.compile(rb"[A-Z_-]+")
_TARGET: Final = re.compile(rb"/[^\x00-\x20\x7f]*")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*")
_NAME: Final = re.compile(rb"[a-z0-9-]+")
_LOOSE_NAME: Final = re.compile(rb"[a-z0-9_-]+")
_BAD_NAME: Final = re.compile(rb"[\x00-\x20\x7f:A-Z]")
_UNSHOWN: Final = re.compile(rb"[\x00-\x20\x7f]")
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]")
_OF_HTTP1: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_ENTRY: Final = 32  # RFC 7541 4.1
_KEPT: Final = 1024
_KEPT_BYTES: Final = 1536


class HeadDecoder:
    """Header blocks of one connection -> lists of fields, within limits.

    size: bytes of one name or value; limit: of all together; most: how many fields.
    """

    def __init__(self, size: int, limit: int, most: int) -> None:
        self._size = size
        self._limit = limit
        self._most = most
        self._decoder = BlockDecoder(self._limit + _ENTRY * self._most)

    @classmethod
    def of(cls, rules: HeadRules) -> HeadDecoder:
        """For requests: nginx's limits for heads."""
        return cls(rules.size, rules.buffers * rules.size, rules.max_headers)

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a block; Fault for the connection: its state is lost, or the client sends bombs."""
        try:
            fields = self._decoder.decode(block)
        except BadBlock as error:
            if error.too_large:
                raise _too_large() from error
            raise Fault(COMPRESSION_ERROR, f"client sent an invalid header block: {error}") from error
        total = 0
        for name, value in fields:
            total += len(name) + len(value)
            if max(len(name), len(value)) > self._size:
                raise _too_large()
        if total > self._limit or len(fields) > self._most:
            raise _too_large()
        return fields

    @property
    def most_bytes(self) -> int:
        """Bytes that a block may have before it is decoded."""
        return self._limit + 16_384


def _too_large() -> Fault:
    return Fault(ENHANCE_YOUR_CALM, "client sent too large header: large_client_header_buffers are used up")


def request_head(fields: list[Field], settings: ServerSettings) -> RequestHead:
    """The head of a request; HttpError 400, 405. `partial_head` is what there is to show of one that fails."""
    valid = _NAME if settings.ignore_invalid_headers and not settings.underscores_in_headers else _LOOSE_NAME
    pseudo: dict[bytes, bytes] = {}
    lines: list[bytes] = []
    hosts: list[bytes] = []
    cookie_at: int | None = None
    for name, value in fields:
        if name[:1] == b":":
            if lines or name in pseudo or name not in _PSEUDO:
                raise _invalid(f'client sent invalid pseudo-header "{show(name)}"')
            pseudo[name] = value
            continue
        if _BAD_VALUE.search(value):
            raise _invalid(f'client sent header "{show(name)}" with invalid value: "{show(value)}"')
        if not valid.fullmatch(name):
            if not name or _BAD_NAME.search(name):
                raise _invalid(f'client sent invalid header name: "{show(name)}"')
            continue
        if name in _OF_HTTP1:
            raise _invalid(f'client sent "{show(name)}" header in HTTP/2')
        if name == b"cookie" and cookie_at is not None:
            lines[cookie_at] = b"%b; %b\r\n" % (lines[cookie_at][:-2], value)  # RFC 9113 8.2.3
            continue
        if name == b"cookie":
            cookie_at = len(lines)
        elif name == b"host":
            hosts.append(value)
        lines.append(b"%b: %b\r\n" % (name, value))
    return _head_of(pseudo, lines, hosts)


def _head_of(pseudo: dict[bytes, bytes], lines: list[bytes], hosts: list[bytes]) -> RequestHead:
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    authority = pseudo.get(b":authority")
    if not _METHOD.fullmatch(method):
        raise _invalid(f'client sent invalid method: "{show(method)}"' if method else "client sent no :method header")
    if not _TARGET.fullmatch(target):
        raise _invalid(
            f'client sent invalid :path header: "{show(target)}"' if target else "client sent no :path header"
        )
    if not _SCHEME.fullmatch(pseudo.get(b":scheme", b"")):
        raise _invalid("client sent no valid :scheme header")
    if authority is not None and hosts != [authority]:
        lines.insert(0, b"host: %b\r\n" % authority)
        hosts.append(authority)
    if not any(hosts):
        raise _invalid("client sent neither :authority nor Host header")
    head = RequestHead()
    head.method, head.target, head.version = method, target, 20
    block = b"".join(lines) + b"\r\n"
    head.fields = read_fields(block, 11)
    head.fields.expect_continue = False
    head.host = head.fields.host
    head.raw = head.shape = b"%b %b HTTP/2.0\r\n%b" % (method, target, block)
    head.length = len(head.raw)
    check_target(target)
    if method in (b"CONNECT", b"TRACE"):
        raise HttpError(405, f"client sent {method.decode()} method")
    return head


def partial_head(fields: list[Field]) -> RequestHead:
    """A stand-in for a head that `request_head` refuses, so that an answer and a log line can be made."""
    found = {name: value for name, value in reversed(fields) if name[:1] == b":"}
    words = [_UNSHOWN.sub(b"?", found.get(name, b"")) for name in (b":method", b":path")]
    head = RequestHead.partial(b"%b %b HTTP/2.0\r\n" % tuple(words))
    head.version = 20
    return head


def _invalid(reason: str) -> HttpError:
    return HttpError(400, reason, close=False)


def trailer_fields(fields: list[Field]) -> list[Field]:
    """The trailers of a request; HttpError 400 when they are malformed (RFC 9113 8.1)."""
    for name, value in fields:
        if _BAD_NAME.search(name) or _BAD_VALUE.search(value) or name in _OF_HTTP1:
            raise _invalid(f'client sent invalid trailer: "{show(name)}"')
    return fields


_blocks: dict[bytes, bytes] = {}


def answer_block(head: bytes) -> bytes:
    """The header block for the head of an answer that is written as HTTP/1.1 would have it."""
    block = _blocks.get(head)
    if block is None:
        lines = head.split(b"\r\n")
        fields = [(b":status", lines[0][9:12])]
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            name = name.lower()
            if colon and name not in _OF_HTTP1:
                fields.append((name, value.strip(b" \t")))
        block = encode_fields(fields)
        if len(head) <= _KEPT_BYTES:
            if len(_blocks) >= _KEPT:
                _blocks.clear()
            _blocks[head] = block
    return block
