"""store_as: what an object holds, its extension and its type."""

from __future__ import annotations

import lzma
import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import zstandard

from headrace.conf.params import Configurable, integer
from headrace.pipeline import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.chunk import Chunk

_LEVEL: Final = re.compile(r"(?:^|\s)-[a-z]*([0-9])(?=\s|$)")


class Compress(Configurable):
    """How zstd compresses."""

    level = integer(default=3, doc="Level, 1 to 22")

    def validate(self, problems: Problems) -> None:
        """Check the level."""
        if not 1 <= self.level <= 22:
            problems.error('parameter "level" must be from 1 to 22', self.place_of("level"))


def level_of(flags: str) -> int | None:
    """The level among the flags of gzip or xz; None when there is none."""
    found = _LEVEL.findall(flags)
    return int(found[-1]) if found else None


def _gzip(text: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()


def _xz(text: bytes, level: int) -> bytes:
    return lzma.compress(text, preset=level)


def _zstd(text: bytes, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(text)


class Store(NamedTuple):
    """One form. kept: a chunk that the buffer compresses so is taken as it is."""

    extension: str
    content_type: str
    pack: Callable[[bytes, int], bytes] | None = None
    level: int = 0
    kept: str | None = None

    def content(self, chunk: Chunk) -> bytes | None:
        """The object, where nothing is to be compressed; None where something is."""
        if self.kept is not None and chunk.codec == codec.NAMES[self.kept]:
            return chunk.read_compressed(self.kept)
        return chunk.read() if self.pack is None else None


STORES: Final[Mapping[str, Store]] = {
    "gzip": Store("gz", "application/x-gzip", _gzip, 6, "gzip"),
    "gzip_command": Store("gz", "application/x-gzip", _gzip, 6, "gzip"),
    "json": Store("json", "application/json"),
    "text": Store("txt", "text/plain"),
    "lzma2": Store("xz", "application/x-xz", _xz, 0),
    "zstd": Store("zst", "application/x-zst", _zstd, 3, "zstd"),
}
