"""Messages of the Forward Protocol v1: what one is, and how one is written.

Fluentd writes PackedForward with the entries as a str32, whatever they are, so that receivers older than
msgpack's bin type read them; so do we. The entries of a chunk are not copied when `packed_pieces` is used.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import pack_value

if TYPE_CHECKING:
    from headrace.pipeline.event import Record

_STR32: Final = struct.Struct(">BI").pack
_SIZE_LIMIT: Final = 1 << 32

PACKED: Final = "PackedForward"
FORWARD: Final = "Forward"
SINGLE: Final = "Message"
VALUE: Final = "value"
"""Any value: a message of the handshake, or what is no message (`problem` says so)."""

COMPRESSIONS: Final = frozenset({"gzip", "zstd"})
"""Values of the option "compressed" besides "text"."""


def chunk_option(chunk_id: bytes) -> str:
    """The option "chunk" of a chunk: base64 with a newline at its end, as Fluentd makes it."""
    return b64encode(chunk_id).decode() + "\n"


def options(
    count: int | None, *, chunk: str | None = None, compressed: str | None = None, **others: Any
) -> dict[str, Any]:
    """Return the options of a message. count: events in it; chunk: see `chunk_option`; None: leave it out."""
    made: dict[str, Any] = {}
    if count is not None:
        made["size"] = count
    if compressed is not None:
        made["compressed"] = compressed
    if chunk is not None:
        made["chunk"] = chunk
    return made | others


def packed_pieces(
    tag: str, entries: bytes, count: int, *, chunk_id: bytes | None = None, compressed: str | None = None
) -> tuple[bytes, bytes, bytes]:
    """Return a PackedForward message in three pieces, the middle one being `entries` itself.

    entries: packed events, compressed already when `compressed` ("gzip", "zstd") says so. count: events.
    chunk_id: the raw id of a chunk that is to be acknowledged. Raises ValueError past 4 GiB.
    """
    if len(entries) >= _SIZE_LIMIT:
        raise ValueError("the entries of a message have less than 4 GiB")
    head = b"\x93" + pack_value(tag) + _STR32(0xDB, len(entries))
    chunk = None if chunk_id is None else chunk_option(chunk_id)
    return head, entries, pack_value(options(count, chunk=chunk, compressed=compressed or "text"))


def encode_packed(
    tag: str, entries: bytes, count: int, *, chunk_id: bytes | None = None, compressed: str | None = None
) -> bytes:
    """Return a PackedForward message as one piece; see `packed_pieces`."""
    return b"".join(packed_pieces(tag, entries, count, chunk_id=chunk_id, compressed=compressed))


def encode_forward(tag: str, entries: list[tuple[Any, Record]], option: dict[str, Any] | None = None) -> bytes:
    """Return a Forward message. A time is an EventTime, or an int or a float of seconds."""
    message: list[Any] = [tag, [list(entry) for entry in entries]]
    if option:
        message.append(option)
    return pack_value(message)


def encode_ack(chunk: Any) -> bytes:
    """Return the acknowledgement of a chunk. chunk: the value of the option "chunk" as it came."""
    return pack_value({"ack": chunk})


class Message:
    """A message as it came.

    tag: its bytes. entries: a packed stream of events, compressed as the option says. count: entries, as the
    message says; 0: it does not. value: of a VALUE. size: bytes on the wire. problem: why it cannot be taken.
    """

    __slots__ = ("count", "entries", "kind", "options", "problem", "size", "tag", "value")

    def __init__(
        self, kind: str, tag: bytes = b"", entries: bytes = b"", *, value: Any = None, problem: str = ""
    ) -> None:
        self.kind = kind
        self.tag = tag
        self.entries = entries
        self.count = 0
        self.options: dict[Any, Any] = {}
        self.value = value
        self.size = 0
        self.problem = problem

    def option(self, name: str) -> Any:
        """An option's value; its name may have come as str or as bin. None without it."""
        value = self.options.get(name)
        return self.options.get(name.encode()) if value is None else value

    @property
    def compression(self) -> str:
        """How the entries are compressed; "" when they are not."""
        value = self.option("compressed")
        if value is None:
            return ""
        name = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        return "" if name == "text" else name

    def __repr__(self) -> str:
        return f"<{self.kind} {self.tag!r}, {len(self.entries)} bytes, {self.options}>"
