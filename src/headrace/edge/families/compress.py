"""brotli and zstd: compress answers on the fly, and send files that are compressed beforehand.

https://github.com/google/ngx_brotli, https://github.com/tokers/zstd-nginx-module
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.edge import phases
from headrace.edge.families.common import (
    HSL,
    HSLI,
    MANY,
    BaseFamily,
    flag,
    flag_of,
    number_of,
    size_of,
    spec,
    table,
)
from headrace.edge.families.gzip import accepts
from headrace.edge.precompressed import sender
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

WINDOWS: Final = {1 << bits: bits for bits in range(10, 25)}
"""Sizes that brotli_window may have, and the bits of each (RFC 7932 9.1)."""


class Packer(Protocol):
    """A stream that is compressed piece by piece."""

    def compress(self, data: bytes) -> bytes:
        """What comes out so far."""
        ...

    def flush(self, *, end: bool) -> bytes:
        """What is held back; end: nothing follows."""
        ...


class _Brotli:
    def __init__(self, quality: int, window: int) -> None:
        self._stream: Any = import_module("brotli").Compressor(quality=quality, lgwin=window)
        self.compress = self._stream.process

    def flush(self, *, end: bool) -> bytes:
        packed: bytes = self._stream.finish() if end else self._stream.flush()
        return packed


class _Zstd:
    def __init__(self, level: int) -> None:
        zstandard = import_module("zstandard")
        self._stream: Any = zstandard.ZstdCompressor(level=level).compressobj()
        self._block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        self.compress = self._stream.compress

    def flush(self, *, end: bool) -> bytes:
        packed: bytes = self._stream.flush() if end else self._stream.flush(self._block)
        return packed


@dataclass(frozen=True)
class Compression:
    """Settings of one location. coding: as Accept-Encoding names it. min_length: bytes. make: begins a stream."""

    coding: bytes
    types: frozenset[bytes]
    min_length: int
    vary: bool
    make: Callable[[], Packer]

    def header(self, request: Request) -> None:
        """The header filter: decide, and change the header when the body will be compressed."""
        out = request.headers_out
        kind = (request.content_type or b"").partition(b";")[0].strip().lower()
        if (
            request.status not in (200, 403, 404)
            or request.parent is not None
            or out.get(b"content-encoding") is not None
            or not (kind in self.types or b"*" in self.types)
            or (request.content_length is not None and request.content_length < self.min_length)
        ):
            return
        if self.vary:
            request.vary = True
        if not accepts(request.header_in(b"accept-encoding"), self.coding):
            return
        request.content_length = request.allow_ranges = None
        out.remove(b"Accept-Ranges")
        tag = out.get(b"etag")
        if tag is not None and not tag.startswith(b"W/"):
            out.set(b"ETag", b"W/" + tag)
        out.set(b"Content-Encoding", self.coding)
        if request.method != b"HEAD":
            request.body_filters = (*request.body_filters, _Packing(self.make()).body)


class _Packing:
    """One answer on its way."""

    def __init__(self, packer: Packer) -> None:
        self._packer: Packer | None = packer

    def body(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter."""
        packer = self._packer
        if packer is None:
            return b""
        packed = packer.compress(data) if data else b""
        if last:
            packed += packer.flush(end=True)
            self._packer = None
        elif request.flushing:
            packed += packer.flush(end=False)
        return packed


class _CompressFamily(BaseFamily):
    """What both have. prefix: of the directives. suffix: of files that are compressed beforehand."""

    prefix = ""
    coding = b""
    suffix = b""
    levels: tuple[int, int] = (1, 1)
    usual = 1

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        short = directive.name.removeprefix(self.prefix).removeprefix("_")
        scope.set_once(directive, self._value(scope, directive, short))
        return None

    def _value(self, scope: Scope, directive: Directive, short: str) -> object:
        text = directive.args[0]
        if short == "":
            return flag_of(directive)
        if short == "static":
            if text not in ("off", "on", "always"):
                raise ConfError(f'invalid value "{text}"', directive.place)
            return text
        if short == "types":
            return frozenset(to_bytes(word).lower() for word in directive.args)
        if short == "min_length":
            return size_of(directive)
        if short == "comp_level":
            level = number_of(directive)
            least, most = self.levels
            if not least <= level <= most:
                raise ConfError(f"value must be between {least} and {most}", directive.place)
            return level
        scope.build.means_nothing(directive)
        return number_of(directive), size_of(directive, 1)

    def compose(self, scope: Scope, location: Location) -> None:
        """Files: before the plain ones. Answers: the header filter adds the body filter where it compresses."""
        prefix = self.prefix
        vary = scope.get("gzip_vary", False)
        how = scope.get(f"{prefix}_static", "off")
        if how != "off":
            wanted = partial(_wants, self.coding)
            send = sender(self.coding, self.suffix, wanted=wanted, vary=vary, always=how == "always")
            location.add(phases.CONTENT, send)
        if scope.get(prefix, False):
            types: frozenset[bytes] = scope.get(f"{prefix}_types", frozenset())
            least = scope.get(f"{prefix}_min_length", 20)
            made = Compression(self.coding, types | {b"text/html"}, least, vary, self._maker(scope))
            made.make()  # a package that is missing is an error now
            location.add_header_filter(prefix, made.header)

    def _maker(self, scope: Scope) -> Callable[[], Packer]:
        raise NotImplementedError


def _specs(prefix: str) -> tuple:  # type: ignore[type-arg]
    return (
        flag(prefix, HSLI),
        spec(f"{prefix}_static", HSL, 1),
        spec(f"{prefix}_types", HSL, 1, MANY),
        *(spec(f"{prefix}_{name}", HSL, 1) for name in ("comp_level", "min_length")),
        spec(f"{prefix}_buffers", HSL, 2),
    )


class BrotliFamily(_CompressFamily):
    """The brotli modules."""

    prefix = "brotli"
    coding = b"br"
    suffix = b".br"
    levels = (0, 11)
    specs = table(*_specs("brotli"), spec("brotli_window", HSL, 1))

    def _value(self, scope: Scope, directive: Directive, short: str) -> object:
        if short != "window":
            return super()._value(scope, directive, short)
        bits = WINDOWS.get(size_of(directive))
        if bits is None:
            raise ConfError("value must be 1k, 2k, 4k, 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m, 4m, 8m or 16m",
                            directive.place)  # fmt: skip
        return bits

    def _maker(self, scope: Scope) -> Callable[[], Packer]:
        try:
            import_module("brotli")
        except ImportError:
            raise ConfError(
                '"brotli" needs the package brotli', scope.place, hint="pip install 'headrace[brotli]'"
            ) from None
        return partial(_Brotli, scope.get("brotli_comp_level", 6), scope.get("brotli_window", 19))


class ZstdFamily(_CompressFamily):
    """The zstd modules."""

    prefix = "zstd"
    coding = b"zstd"
    suffix = b".zst"
    levels = (1, 22)
    specs = table(*_specs("zstd"))

    def _maker(self, scope: Scope) -> Callable[[], Packer]:
        return partial(_Zstd, scope.get("zstd_comp_level", 1))


def _wants(coding: bytes, request: Request) -> bool:
    return request.parent is None and accepts(request.header_in(b"accept-encoding"), coding)
