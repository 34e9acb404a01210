"""The format of a journal's files: records with a checksum, each a small transaction. No I/O.

A segment is a file of a header and records, one after the other:

    header   8s  "HEADRACE"   u16 version   u16 zero   u32 CRC-32 of the other fields   u64 number
    record   4s  marker       u32 CRC-32    u32 length of the body      body
    body     operations:  u8 kind   u32 length   payload

All integers are big endian. A record is valid or it does not exist: everything in it happens together. The
checksum covers segment number, offset, length and body, so that a record which turns up at the wrong place
is not taken for one; the marker lets a reader find the next record behind damaged bytes.

Operations. A chunk is called by its ref, a number that is used once in the life of a journal; the pieces of
a chunk count from 0, and a piece that appears again (moved by compaction) replaces the earlier one.

    OPEN    u64 ref  16s chunk id  u64 created (ns)  u8 codec  msgpack [tag, timekey, variables]
    APPEND  u64 ref  u32 piece  u32 events  u64 written (ns)  bytes as stored
    PURGE   u64 ref                 the chunk is delivered
    SEEN    ids of accepted batches, each u8 length and bytes
    PAD     anything                what stood here was damaged and is in the backup
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.pipeline.event import pack_value, unpack_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

VERSION: Final = 1
MARKER: Final = b"\xf5HR\x9d"

PAD: Final = 0
OPEN: Final = 1
APPEND: Final = 2
PURGE: Final = 3
SEEN: Final = 4

_HEADER: Final = struct.Struct(">8sHHIQ")
_RECORD: Final = struct.Struct(">4sII")
_SEED: Final = struct.Struct(">QQI")
_OPERATION: Final = struct.Struct(">BI")
_OPEN: Final = struct.Struct(">Q16sQB")
_APPEND: Final = struct.Struct(">QIIQ")
_REF: Final = struct.Struct(">Q")

HEADER_SIZE: Final = _HEADER.size
RECORD_HEAD: Final = _RECORD.size
APPEND_HEAD: Final = _OPERATION.size + _APPEND.size
"""Bytes of an APPEND operation before its data."""


class Opened(NamedTuple):
    """The OPEN operation."""

    ref: int
    chunk_id: bytes
    created: int
    codec: int
    tag: str | None
    timekey: int | None
    variables: dict[str, Any] | None


class Appended(NamedTuple):
    """The APPEND operation. offset, length: where its data stand in the segment."""

    ref: int
    piece: int
    events: int
    written: int
    offset: int
    length: int


class Purged(NamedTuple):
    """The PURGE operation."""

    ref: int


class SeenIds(NamedTuple):
    """The SEEN operation."""

    ids: list[bytes]


Operation = Opened | Appended | Purged | SeenIds


def header(number: int) -> bytes:
    """Return the header of a segment."""
    check = zlib.crc32(struct.pack(">8sHHQ", b"HEADRACE", VERSION, 0, number))
    return _HEADER.pack(b"HEADRACE", VERSION, 0, check, number)


def newer_version(data: bytes) -> int | None:
    """Return the version of a header that a later headrace wrote, None for ours or a damaged one."""
    if len(data) < HEADER_SIZE:
        return None
    magic, version, zero, check, number = _HEADER.unpack_from(data)
    whole = check == zlib.crc32(struct.pack(">8sHHQ", magic, version, zero, number))
    return version if whole and magic == b"HEADRACE" and version > VERSION else None


def record(operations: Sequence[bytes], number: int, offset: int) -> bytes:
    """Return a record for segment `number`, to stand at `offset`. operations: in pieces, which are copied once."""
    size = sum(map(len, operations))
    check = zlib.crc32(_SEED.pack(number, offset, size))
    for piece in operations:
        check = zlib.crc32(piece, check)
    return b"".join((_RECORD.pack(MARKER, check, size), *operations))


def pad(size: int, number: int, offset: int) -> bytes:
    """Return a record of `size` bytes in all that says nothing."""
    body = size - RECORD_HEAD
    return record((_OPERATION.pack(PAD, body - _OPERATION.size), bytes(body - _OPERATION.size)), number, offset)


PAD_MINIMUM: Final = RECORD_HEAD + _OPERATION.size


def opened(
    ref: int,
    chunk_id: bytes,
    created: int,
    codec: int,
    tag: str | None,
    timekey: int | None,
    variables: dict[str, Any] | None,
) -> bytes:
    """Return an OPEN operation."""
    payload = _OPEN.pack(ref, chunk_id, created, codec) + pack_value([tag, timekey, variables])
    return _OPERATION.pack(OPEN, len(payload)) + payload


def append_head(ref: int, piece: int, count: int, written: int, size: int) -> bytes:
    """Return what stands before the `size` bytes of data of an APPEND operation."""
    return _OPERATION.pack(APPEND, _APPEND.size + size) + _APPEND.pack(ref, piece, count, written)


def purged(ref: int) -> bytes:
    """Return a PURGE operation."""
    return _OPERATION.pack(PURGE, _REF.size) + _REF.pack(ref)


def seen(ids: Iterable[bytes]) -> bytes:
    """Return a SEEN operation; an id has at most 255 bytes."""
    payload = b"".join([bytes((len(one),)) + one for one in ids])
    return _OPERATION.pack(SEEN, len(payload)) + payload


class Span(NamedTuple):
    """Part of a segment: a valid record (`good`), or bytes that are none."""

    start: int
    end: int
    good: bool


def scan(data: bytes, number: int) -> Iterator[Span]:
    """Cut a segment into valid records and what lies between them, in order; the header is left out."""
    at = HEADER_SIZE
    end = len(data)
    while at < end:
        after = _valid(data, number, at)
        if after:
            yield Span(at, after, good=True)
            at = after
            continue
        start = at
        while True:
            at = data.find(MARKER, at + 1)
            if at < 0:
                yield Span(start, end, good=False)
                return
            if _valid(data, number, at):
                yield Span(start, at, good=False)
                break


def _valid(data: bytes, number: int, at: int) -> int:
    """Return the end of the record at an offset, 0 when there is no valid one."""
    if at + RECORD_HEAD > len(data):
        return 0
    marker, check, size = _RECORD.unpack_from(data, at)
    start = at + RECORD_HEAD
    if marker != MARKER or start + size > len(data) or not size:
        return 0
    seed = zlib.crc32(_SEED.pack(number, at, size))
    return start + size if zlib.crc32(memoryview(data)[start : start + size], seed) == check else 0


def operations(data: bytes, span: Span) -> Iterator[Operation]:
    """Read the operations of a valid record. Raises ValueError for one that a later version may have written."""
    at = span.start + RECORD_HEAD
    while at < span.end:
        kind, size = _OPERATION.unpack_from(data, at)
        at += _OPERATION.size
        if kind == APPEND:
            ref, piece, events, written = _APPEND.unpack_from(data, at)
            yield Appended(ref, piece, events, written, at + _APPEND.size, size - _APPEND.size)
        elif kind == OPEN:
            ref, chunk_id, created, codec = _OPEN.unpack_from(data, at)
            tag, timekey, variables = unpack_value(data[at + _OPEN.size : at + size])
            yield Opened(ref, chunk_id, created, codec, tag, timekey, variables)
        elif kind == PURGE:
            yield Purged(*_REF.unpack_from(data, at))
        elif kind == SEEN:
            yield SeenIds(_ids(data[at : at + size]))
        elif kind != PAD:
            raise ValueError(f"unknown operation {kind}")
        at += size


def _ids(payload: bytes) -> list[bytes]:
    ids = []
    at = 0
    while at < len(payload):
        end = at + 1 + payload[at]
        ids.append(payload[at + 1 : end])
        at = end
    return ids
