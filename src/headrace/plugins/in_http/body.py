"""A request's body -> records, losing nothing.

Rules:
- A body is taken whole or not at all: one bad line or element refuses all of it.
- Expansion is bounded: a compressed body may not grow past the limit, in any number of members, nor out of
  proportion (`bounds`).
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Final

import zstandard

from headrace.errors import HttpError
from headrace.pipeline.flat import unpack_flat
from headrace.plugins.in_http.bounds import LOOKED_AT, OBJECTS, VALUES, check_expansion, check_json
from headrace.plugins.jsoncodec import decode
from headrace.plugins.zstd_stream import pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.event import Record

_STEP: Final = 4 << 20
"""Bytes that are expanded between two looks."""
_LINE: Final = re.compile(rb"\r?\n")


def bad(reason: str) -> HttpError:
    """Refuse a body that is understood and wrong; the connection stays usable."""
    return HttpError(400, reason, close=False)


def _only_maps(values: list[Any]) -> list[Record]:
    if values and set(map(type, values)) != {dict}:
        found = next(type(value).__name__ for value in values if type(value) is not dict)
        raise bad(f"a record must be an object, not {found}")
    return values


def json_records(body: bytes) -> list[Record]:
    """One object, or an array of objects."""
    if len(body) >= LOOKED_AT:
        check_json(body)
    try:
        value = decode(body)
    except ValueError as error:
        raise bad(str(error)) from error
    if type(value) is dict:
        return [value]
    if type(value) is not list:
        raise bad(f"an object or an array of objects is needed, not {type(value).__name__}")
    return _only_maps(value)


def ndjson_records(body: bytes) -> list[Record]:
    """One object, or an array of objects, a line; empty lines count for nothing."""
    check_json(body)
    records: list[Record] = []
    for number, line in enumerate(_LINE.split(body), 1):
        if not line or line.isspace():
            continue
        try:
            records += json_records(line)
        except HttpError as error:
            raise bad(f"line {number}: {error.message}") from error
    return records


def msgpack_records(body: bytes) -> list[Record]:
    """Maps and arrays of maps, one after the other."""
    try:
        values = unpack_flat(body) if len(body) < LOOKED_AT else _large(body)
    except ValueError as error:
        raise bad(f"invalid msgpack: {error}") from error
    return _only_maps(values)


def _large(body: bytes) -> list[Any]:
    return unpack_flat(body, map_limit=VALUES, array_limit=OBJECTS)


FORMATS: Final[dict[str, Callable[[bytes], list[Record]]]] = {
    "msgpack": msgpack_records,
    "json": json_records,
    "ndjson": ndjson_records,
}
"""In the order in which Fluentd looks for them among the parameters of a form."""


def _inflate(data: bytes, wbits: int, limit: int, *, members: bool) -> bytes:
    parts: list[bytes] = []
    room = limit
    size = len(data)
    while True:
        unpacker_ = zlib.decompressobj(wbits)
        while not unpacker_.eof:
            part = unpacker_.decompress(data, min(room + 1, _STEP))
            room -= len(part)
            if room < 0:
                raise HttpError(413, f"the body expands to more than {limit} bytes")
            check_expansion(size - len(unpacker_.unconsumed_tail) - len(unpacker_.unused_data), limit - room)
            parts.append(part)
            data = unpacker_.unconsumed_tail
            if not part and not data and not unpacker_.eof:
                raise bad("the compressed body is cut short")
        data = unpacker_.unused_data
        # gzip(1) pads with zeros, and other bytes after the last member mean a damaged body.
        if not data.strip(b"\0"):
            return b"".join(parts) if len(parts) > 1 else parts[0]
        if not members:
            raise bad("bytes after the compressed body")


def _unzstd(data: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        for part in pieces(data):
            size += len(part)
            if size > limit:
                raise HttpError(413, f"the body expands to more than {limit} bytes")
            check_expansion(len(data), size)
            parts.append(part)
    except EOFError:
        raise bad("the compressed body is cut short") from None
    return b"".join(parts)


def expand(coding: bytes, body: bytes, limit: int) -> bytes:
    """Undo a Content-Encoding (RFC 9110 8.4.1): gzip, zstd, deflate, identity.

    All members of gzip, all frames of zstd; deflate is zlib's format, and the bare one that some clients send.
    limit: bytes of the result.
    Raises HttpError: 413 past the limit, 415 for another coding, 400 for a body that is damaged.
    """
    coding = coding.strip().lower()
    try:
        if coding in {b"gzip", b"x-gzip"}:
            return _inflate(body, 31, limit, members=True)
        if coding == b"deflate":
            bare = len(body) < 2 or body[0] & 0x0F != 8 or (body[0] << 8 | body[1]) % 31 != 0
            return _inflate(body, -15 if bare else 15, limit, members=False)
        if coding == b"zstd":
            return _unzstd(body, limit)
    except (zlib.error, zstandard.ZstdError) as error:
        raise bad(f"the {coding.decode()} body cannot be expanded: {error}") from error
    if coding in {b"", b"identity"}:
        return body
    raise HttpError(415, f"Content-Encoding {coding.decode('latin-1')} is not supported", close=False)
