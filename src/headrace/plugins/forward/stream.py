"""Bytes of a connection -> messages of the Forward Protocol v1, whatever slices they come in.

Rules:
- Nothing is decoded that need not be: entries are cut out of the bytes and stay packed, those of a Forward
  message too (its array holds what a packed stream holds), and a single event becomes a stream of one.
- Every byte is looked at once. Entries whose length was announced are collected and joined once; for a value
  without an announced length an unpacker that keeps its place looks for the end.
- Bounded before memory is: an announced length, the bytes of what has none, tags, options, depth.
- A message that makes no sense is a `Message` with `problem`; what follows it is read. Bytes that are no
  messages set `error`: the connection is of no use any more.

A stream that begins with `[` or `{` is JSON, as Fluentd's source takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgpack

from headrace.errors import Error, Side
from headrace.pipeline.event import unpack_value, unpacker
from headrace.plugins.forward.jsonstream import JsonError, JsonStream
from headrace.plugins.forward.messages import PACKED, VALUE, Message
from headrace.plugins.forward.whole import OPTIONS_LIMIT, TAG_LIMIT, broken, of_json, set_options, taken_apart
from headrace.plugins.jsoncodec import decode

if TYPE_CHECKING:
    from collections.abc import Callable

ANNOUNCED_LIMIT: Final = 256 << 20
"""Bytes of packed entries: the largest chunk that Fluentd's file buffer makes by default."""
GROWN_LIMIT: Final = 16 << 20
"""Bytes of a message that does not announce its length."""
VALUE_LIMIT: Final = 16 << 10
"""Bytes of a message of the handshake."""

_SPECULATION: Final = 1 << 16
_SMALL: Final = 4096
_SLACK: Final = 1 << 20
_MALFORMED: Final = (msgpack.UnpackException, ValueError, TypeError, RecursionError)


class ProtocolError(Error):
    """Bytes that are no messages, or a message that is too large to be read."""

    kind = "bad_message"
    side = Side.CLIENT


class _More(Exception):
    """The bytes end before what is read."""


class Decoder:
    """Reads one connection. `push` bytes, then take messages by `next` until it returns None; `feed` does both.

    values: True while the handshake goes on: whole values are returned as they are, and must be small. It may
    be changed between two calls of `next`. is_json: how answers are to be written; None before the first byte.
    error: set when the connection is of no use any more.
    """

    __slots__ = (
        "_announced", "_at", "_available", "_buffer", "_entries", "_grown", "_json", "_length", "_limit", "_need",
        "_parts", "_reader", "_reader_at", "_searcher", "_started", "_step", "_tag", "_trailing",
        "error", "is_json", "values",
    )  # fmt: skip

    def __init__(self, *, announced: int = ANNOUNCED_LIMIT, grown: int = GROWN_LIMIT) -> None:
        self.values = False
        self.is_json: bool | None = None
        self.error: ProtocolError | None = None
        self._announced = announced
        self._grown = grown
        self._json: JsonStream | None = None
        self._buffer = b""
        self._at = 0
        self._parts: list[bytes | bytearray] = []
        self._available = 0  # bytes from _at on, those of _parts included
        self._need = 1
        self._step: Callable[[Decoder], Message | None] = Decoder._head
        # Of the message that is being read:
        self._tag = b""
        self._entries = b""
        self._length = 0  # bytes of the entries
        self._trailing = 0  # values behind the entries
        self._started = 0  # bytes of it that are consumed
        self._reader: msgpack.Unpacker | None = None  # goes through values that are whole
        self._reader_at = 0  # where in the buffer it began
        self._limit = 0  # bytes of the value whose end is looked for
        self._searcher: msgpack.Unpacker | None = None  # looks for the end of a value

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes and return the messages that are whole."""
        self.push(data)
        found: list[Message] = []
        while (message := self.next()) is not None:
            found.append(message)
        return found

    def push(self, data: bytes) -> None:
        """Take bytes of the connection."""
        if self.is_json is None and data:
            self.is_json = data[0] in b"[{"
            if self.is_json:
                self._json = JsonStream()
        if self._json is not None:
            self._json.push(data)
        elif self._available:
            self._append(data)
        else:
            self._buffer = data
            self._at = 0
            self._reader = None
            self._available = len(data)

    def next(self) -> Message | None:
        """Return the next message that is whole, or None."""
        if self.error is not None:
            return None
        try:
            if self._json is not None:
                return self._next_json(self._json)
            while self._available >= self._need:
                message = self._step(self)
                if message is not None:
                    return message
        except _More:
            pass
        except (ProtocolError, JsonError) as error:
            self.error = ProtocolError(error.message)
        except _MALFORMED as error:
            self.error = ProtocolError(f"malformed msgpack: {str(error) or type(error).__name__}")
        return None

    def _append(self, data: bytes) -> None:
        self._available += len(data)
        if self._searcher is not None and self._available <= self._limit + _SLACK:
            self._searcher.feed(data)
        parts = self._parts
        if len(data) >= _SMALL:
            parts.append(data)
        elif parts and type(parts[-1]) is bytearray and len(parts[-1]) < _SMALL:
            parts[-1] += data
        else:  # pieces of two bytes in a list would take twenty times their size
            parts.append(bytearray(data))

    @property
    def pending(self) -> int:
        """Bytes that are held for a message that is not whole yet."""
        return self._available

    # Bytes.

    def _join(self) -> bytes:
        """Bring everything that is available into one piece, which begins at `_at`."""
        if self._parts:
            self._buffer = b"".join([self._buffer[self._at :], *self._parts])
            self._at = 0
            self._reader = None
            self._parts = []
        return self._buffer

    def _gather(self, length: int) -> bytes:
        """Take bytes of which the buffer holds not all: they are copied once, and what follows them not at all."""
        parts = self._parts
        pieces: list[bytes | bytearray | memoryview] = [memoryview(self._buffer)[self._at :]]
        left = length - len(pieces[0])
        number = 0
        while left > (size := len(parts[number])):
            pieces.append(parts[number])
            left -= size
            number += 1
        last = bytes(parts[number])
        pieces.append(memoryview(last)[:left])
        gathered = b"".join(pieces)
        self._consume(length)
        self._buffer = last
        self._at = left
        self._parts = parts[number + 1 :]
        self._reader = None
        return gathered

    def _wait(self, need: int) -> _More:
        self._need = need
        return _More()

    def _consume(self, size: int) -> None:
        self._at += size
        self._available -= size
        self._started += size
        self._need = 1

    def _done(self, message: Message) -> Message:
        message.size = self._started
        self._started = 0
        if not self._available:  # an idle connection holds nothing of what it brought
            self._buffer = b""
            self._at = 0
            self._reader = None
        self._step = Decoder._head
        return message

    # The steps: each consumes what it understands and sets the next one.

    def _head(self) -> Message | None:
        data = self._join()
        start = at = self._at
        first = data[at]
        if self.values or not (0x92 <= first <= 0x94):
            if first == 0xC0 and not self.values:  # a heartbeat
                self._consume(1)
                self._started = 0
                return None
            self._step = Decoder._whole
            return None
        tag, at = self._text(data, at + 1, TAG_LIMIT)
        if tag is None:
            self._step = Decoder._whole
            return None
        if at >= len(data):
            raise self._wait(at + 1 - start)
        length, at = self._text_head(data, at)
        if length < 0:
            self._step = Decoder._whole
            return None
        if length > self._announced:
            raise ProtocolError(f"a message announces {length} bytes, more than {self._announced}")
        self._tag = tag
        self._length = length
        self._trailing = (first & 0x0F) - 2
        self._consume(at - start)
        self._need = length
        self._step = Decoder._body
        return None

    def _text_head(self, data: bytes, at: int) -> tuple[int, int]:
        """(bytes of the str or bin, where they begin); (-1, at) for anything else."""
        first = data[at]
        if 0xA0 <= first <= 0xBF:
            return first & 0x1F, at + 1
        width = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}.get(first)
        if width is None:
            return -1, at
        after = at + 1 + width
        if len(data) < after:
            raise self._wait(after - self._at)
        return int.from_bytes(data[at + 1 : after], "big"), after

    def _text(self, data: bytes, at: int, limit: int) -> tuple[bytes | None, int]:
        """(the str or bin, where it ends); (None, at) for anything else."""
        if at >= len(data):
            raise self._wait(at + 1 - self._at)
        length, start = self._text_head(data, at)
        if length < 0:
            return None, at
        if length > limit:
            raise ProtocolError(f"a tag of {length} bytes")
        if len(data) < start + length:
            raise self._wait(start + length - self._at)
        return data[start : start + length], start + length

    def _body(self) -> Message | None:
        length = self._length
        if self._parts and len(self._buffer) - self._at < length:
            self._entries = self._gather(length)
        else:
            self._entries = self._buffer[self._at : self._at + length]
            self._consume(length)
        if self._trailing:
            self._step = Decoder._options
            return None
        return self._packed({})

    def _options(self) -> Message | None:
        data = self._join()
        source = unpacker(data[self._at : self._at + OPTIONS_LIMIT], OPTIONS_LIMIT)
        try:
            values = [source.unpack() for _ in range(self._trailing)]
        except msgpack.OutOfData:
            if self._available >= OPTIONS_LIMIT:
                raise ProtocolError(f"options of more than {OPTIONS_LIMIT} bytes") from None
            raise self._wait(self._available + 1) from None
        self._consume(source.tell())
        return self._packed(values[0])

    def _packed(self, options: Any) -> Message:
        message = Message(PACKED, self._tag, self._entries)
        self._entries = b""
        set_options(message, options)
        size = message.option("size")
        message.count = size if type(size) is int and 0 <= size < 1 << 32 else 0
        return self._done(message)

    def _whole(self) -> Message | None:
        """A value that does not announce its length."""
        limit = self._limit = VALUE_LIMIT if self.values else self._grown
        searcher = self._searcher
        if searcher is None:
            # Mostly there are many short ones: a reader goes from one to the next.
            data = self._join()
            at = self._at
            reader = self._reader
            if reader is None or self._reader_at + reader.tell() != at:
                reader = self._reader = msgpack.Unpacker(max_buffer_size=_SPECULATION)
                reader.feed(data[at : at + _SPECULATION] if len(data) - at > _SPECULATION or at else data)
                self._reader_at = at
            try:
                reader.skip()
            except msgpack.OutOfData:
                self._reader = None
            else:
                return self._take(data[at : self._reader_at + reader.tell()])
            searcher = self._searcher = msgpack.Unpacker(max_buffer_size=limit + _SLACK)
            searcher.feed(data[self._at : self._at + limit + 1])
        try:
            if self._available > limit + _SLACK:
                raise ProtocolError(f"a message has more than {limit} bytes")
            searcher.skip()
        except msgpack.OutOfData:
            if self._available > limit:
                raise ProtocolError(f"a message has more than {limit} bytes") from None
            raise self._wait(self._available + 1) from None
        if searcher.tell() > limit:
            raise ProtocolError(f"a message has more than {limit} bytes")
        size = searcher.tell()
        searcher = self._searcher = None  # it holds a copy of all that
        data = self._join()
        return self._take(data[self._at : self._at + size])

    def _take(self, frame: bytes) -> Message:
        self._consume(len(frame))
        if self.values:
            return self._done(Message(VALUE, value=unpack_value(frame)))
        try:
            return self._done(taken_apart(frame))
        except _MALFORMED as error:
            return self._done(broken(f"a message that cannot be read: {str(error) or type(error).__name__}"))

    def _next_json(self, source: JsonStream) -> Message | None:
        text = source.next()
        if text is None:
            return None
        try:
            value = decode(text)
            message = Message(VALUE, value=value) if self.values else of_json(value)
        except _MALFORMED as error:
            message = broken(f"a JSON message that cannot be read: {error}")
        message.size = len(text)
        return message
