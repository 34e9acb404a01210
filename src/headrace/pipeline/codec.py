"""Compression of chunks: whatever is appended becomes one gzip member (RFC 1952) or zstd frame (RFC 8878).

A chunk is compressed piece by piece as events arrive. With `flush` each piece ends at a byte boundary and
can be decoded without what follows, which is what a journal needs; without it the pieces are smaller.
`finish` returns the bytes that close the member.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Protocol

import zstandard

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT: Final = 0
GZIP: Final = 1
ZSTD: Final = 2
STEP: Final = 64 << 10
NAMES: Final[Mapping[str, int]] = {"text": TEXT, "gzip": GZIP, "zstd": ZSTD}


class Encoder(Protocol):
    """A member in the making."""

    def add(self, data: bytes, *, flush: bool) -> bytes:
        """Return the next compressed bytes, perhaps none without flush."""
        ...

    def finish(self) -> bytes:
        """Return the end of the member."""
        ...


class _Gzip:
    __slots__ = ("_deflate",)

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(wbits=31)

    def add(self, data: bytes, *, flush: bool) -> bytes:
        out = self._deflate.compress(data)
        return out + self._deflate.flush(zlib.Z_SYNC_FLUSH) if flush else out

    def finish(self) -> bytes:
        return self._deflate.flush()


class _Zstd:
    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream = zstandard.ZstdCompressor().compressobj()

    def add(self, data: bytes, *, flush: bool) -> bytes:
        out = self._stream.compress(data)
        return out + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) if flush else out

    def finish(self) -> bytes:
        return self._stream.flush()


def encoder(codec: int) -> Encoder:
    """Return a new member's encoder; codec is GZIP or ZSTD."""
    return _Gzip() if codec == GZIP else _Zstd()


def compress(codec: int, data: bytes) -> bytes:
    """Return a whole member."""
    if codec == TEXT:
        return data
    return zlib.compress(data, wbits=31) if codec == GZIP else zstandard.ZstdCompressor().compress(data)


def decompress(codec: int, data: bytes) -> bytes:
    """Return what members hold, one after the other; of one that is cut short what can be had. Raises ValueError."""
    if codec == TEXT or not data:
        return data
    found, end = salvage(codec, data)
    if end is not None:
        raise ValueError(f"damaged compressed data: {end}")
    return found


def salvage(codec: int, data: bytes) -> tuple[bytes, Exception | None]:
    """Return what can be decoded of members, and what made it end before the end; a cut is no error."""
    found: list[bytes] = []
    view = memoryview(data)
    at, size = 0, len(data)
    try:
        while at < size:
            one = zlib.decompressobj(wbits=31) if codec == GZIP else zstandard.ZstdDecompressor().decompressobj()
            while at < size and not one.eof:  # in steps: what stands before the damage is not lost with it
                part = view[at : at + STEP]
                found.append(one.decompress(part))
                at += len(part) - len(one.unused_data)
    except (zlib.error, zstandard.ZstdError) as error:
        return b"".join(found), error
    return b"".join(found), None


def sniffed(data: bytes) -> int:
    """Return the codec that the first bytes of a file tell."""
    if data[:3] == b"\x1f\x8b\x08":
        return GZIP
    return ZSTD if data[:4] == b"\x28\xb5\x2f\xfd" else TEXT
