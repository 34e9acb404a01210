"""The output of a process -> messages -> events.

How it is cut into messages depends on the parser, as in Fluentd: JSON values and msgpack values one after the other,
else lines. Memory is bounded: a line or value of more than LIMIT bytes is left out (a line) or ends the reading.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final, Protocol

import msgpack

from headrace.plugins.forward.jsonstream import JsonError, JsonStream
from headrace.plugins.network.frames import Delimited, FrameError
from headrace.plugins.parser_json import JsonParser
from headrace.plugins.parser_msgpack import MsgpackParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.pipeline.event import Record
    from headrace.pipeline.plugin import Parser
    from headrace.plugins.patience import Groups

LIMIT: Final = 32 << 20
_RUBY_NAMES: Final = {"windows-31j": "cp932", "cp51932": "euc_jp", "eucjp-ms": "euc_jp", "utf8-mac": "utf-8"}
_RAW: Final = frozenset({"ascii-8bit", "binary"})


class Cutter(Protocol):
    """Bytes -> messages."""

    def feed(self, data: bytes) -> Sequence[bytes]:
        """The messages that are complete. Raises FrameError."""
        ...

    def end(self) -> Sequence[bytes]:
        """What is left at the end."""
        ...


class Lines:
    """One message a line; the last needs no newline."""

    def __init__(self) -> None:
        self._frames = Delimited(b"\n", LIMIT)

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Whole lines."""
        return [line.removesuffix(b"\r") for line in self._frames.feed(data)]

    def end(self) -> Sequence[bytes]:
        """The line without a newline."""
        return self.feed(b"\n") if self._frames.pending else ()


class JsonValues:
    """JSON objects and arrays."""

    def __init__(self) -> None:
        self._stream = JsonStream()

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Whole values. Raises FrameError."""
        self._stream.push(data)
        found: list[bytes] = []
        try:
            while (value := self._stream.next()) is not None:
                found.append(value)
        except JsonError as error:
            if not found:
                raise FrameError(error.message) from error
        return found

    def end(self) -> Sequence[bytes]:
        """Half a value is none."""
        return ()


class MsgpackValues:
    """msgpack values."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Whole values. Raises FrameError."""
        buffer = self._buffer
        buffer += data
        if len(buffer) > LIMIT:
            raise FrameError(f"a value of more than {LIMIT} bytes")
        source = msgpack.Unpacker(max_buffer_size=len(buffer))
        source.feed(buffer)
        found: list[bytes] = []
        start = 0
        try:
            while True:
                source.skip()
                end = source.tell()
                found.append(bytes(buffer[start:end]))
                start = end
        except msgpack.OutOfData:
            pass
        except (msgpack.UnpackException, ValueError, RecursionError) as error:
            if not found:
                raise FrameError(f"malformed msgpack: {error}") from error
        del buffer[:start]
        return found

    def end(self) -> Sequence[bytes]:
        """Half a value is none."""
        return ()


def cutter_for(parser: Parser) -> Cutter:
    """How the output for a parser is cut."""
    if isinstance(parser, JsonParser):
        return JsonValues()
    return MsgpackValues() if isinstance(parser, MsgpackParser) else Lines()


def decoder_for(encoding: str | None) -> Callable[[bytes, bool], bytes] | None:
    """A function (bytes, whether they are the last) -> UTF-8; None when there is nothing to do.

    Bytes that the encoding does not have become U+FFFD. Raises ValueError for an unknown encoding.
    """
    if encoding is None or encoding.lower() in _RAW:
        return None
    name = _RUBY_NAMES.get(encoding.lower(), encoding)
    try:
        if codecs.lookup(name).name in {"utf-8", "ascii"}:
            return None
        decoder = codecs.getincrementaldecoder(name)("replace")
    except (LookupError, TypeError):
        raise ValueError(f'"{encoding}" is no encoding') from None

    def decode(data: bytes, final: bool) -> bytes:
        return decoder.decode(data, final).encode("utf-8", "surrogateescape")

    return decode


class Events:
    """Messages -> events by a parser, with their tags and times.

    unmatched: called with a message that the parser does not take, and why. failed: called for an event whose time
    cannot be read.
    """

    def __init__(
        self,
        parser: Parser,
        *,
        tag: str,
        tag_of: Callable[[Record], str | None] | None,
        time_of: Callable[[Record], int | None] | None,
        now: Callable[[], int],
        unmatched: Callable[[bytes, object], None],
        prefix: str = "",
    ) -> None:
        self._parser = parser
        self._tag = tag
        self._tag_of = tag_of
        self._time_of = time_of
        self._now = now
        self._unmatched = unmatched
        self._prefix = prefix

    def add(self, messages: Sequence[bytes], groups: Groups) -> None:
        """Put the events of some messages into `groups`."""
        for message in messages:
            try:
                for time, record in self._parser.parse(message):
                    if record is None:
                        self._unmatched(message, "")
                    else:
                        self._event(time, record, groups)
            except ValueError as error:
                self._unmatched(message, error)

    def _event(self, time: int | None, record: Record, groups: Groups) -> None:
        tag = self._tag_of(record) if self._tag_of is not None else None
        tag = self._tag if tag is None else self._prefix + tag
        if time is None and self._time_of is not None:
            time = self._time_of(record)
        if time is None:
            time = self._now()
        groups.setdefault(tag, []).append((time, record))
