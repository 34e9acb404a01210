"""A chunk: events that are delivered together, and what is known about them.

States: STAGED (grows) -> QUEUED (complete, waits for a lane) -> IN_FLIGHT (a lane has it) -> GONE
(delivered, backed up or dropped); a chunk whose delivery failed is QUEUED again.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from headrace.pipeline import codec
from headrace.pipeline.event import decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.pipeline.ack import Awaited
    from headrace.pipeline.buffer import Store
    from headrace.pipeline.event import Event
    from headrace.pipeline.placeholders import ChunkKeys, Meta

STAGED: Final = "staged"
QUEUED: Final = "queued"
IN_FLIGHT: Final = "in flight"
GONE: Final = "gone"


def new_id(wall_ns: int) -> bytes:
    """Return a unique id of 16 bytes that sorts by time, made as Fluentd makes it."""
    return (wall_ns // 1000 << 76 | random.getrandbits(76)).to_bytes(16, "big")


class Chunk:
    """One chunk of one output.

    id: 16 bytes. meta: what its events have in common. count: events. size: bytes as stored. created: ns
    since the epoch. since: when its first event came, by the clock in seconds. attempts: deliveries tried.
    """

    __slots__ = (
        "attempts",
        "closed", "codec", "count", "created", "due", "encoder", "epoch", "error", "failed_since", "flushing_since",
        "group", "id", "keys", "meta", "parts", "place",
        "ragged", "secondary_attempts", "since", "size", "state", "store", "turn",
        "waiters", "window",
    )  # fmt: skip

    def __init__(
        self, store: Store, keys: ChunkKeys, group: object, meta: Meta, created: int, since: float, kind: int
    ) -> None:
        self.id = new_id(created)
        self.store = store
        self.keys = keys
        self.group = group
        self.meta = meta
        self.created = created
        self.since = since
        self.state = STAGED
        self.count = 0
        self.size = 0
        self.codec = kind
        self.encoder = codec.encoder(kind) if kind else None
        # What the store knows: pieces in memory, and whatever it needs to find the others.
        self.parts: list[bytes] | None = []
        self.place: object = None
        self.closed = False
        """Nothing more may be appended: its compressed stream was interrupted by a failed write."""
        self.ragged = False
        """Its compressed stream has no proper end."""
        # What the retry logic knows.
        self.attempts = 0
        self.secondary_attempts = 0
        self.error = ""
        """What its last delivery failed of."""
        self.failed_since: float | None = None
        self.due = 0.0
        self.window = -1
        self.epoch = 0
        self.flushing_since = 0.0
        self.turn = 0
        """Its place in the queue."""
        self.waiters: list[Awaited] | None = None
        """Who waits until it is delivered."""

    @property
    def hex_id(self) -> str:
        """The id as logs, files and `${chunk_id}` show it."""
        return self.id.hex()

    @property
    def tag(self) -> str | None:
        """The tag of its events, when tag is a chunk key."""
        return self.meta.tag

    def read(self) -> bytes:
        """Return everything in it, as formatted: decompressed. Raises ValueError or OSError when it is damaged."""
        return codec.decompress(self.codec, self.store.read(self))

    def pieces(self) -> Sequence[bytes]:
        """As `read`, but not copied together where that is not needed: the pieces in their order."""
        if self.codec == codec.TEXT and self.parts is not None:
            return self.parts
        return (self.read(),)

    def read_compressed(self, name: str = "gzip") -> bytes:
        """Return the content as one gzip member (or one zstd frame), as it is kept when the buffer compresses so."""
        kind = codec.NAMES[name]
        if self.codec == kind and not self.ragged:
            return self.store.read(self)
        return codec.compress(kind, self.read())

    def events(self) -> list[Event]:
        """Return the events, when the chunk holds the msgpack stream. Raises ValueError when it does not."""
        return decoded(self.read(), self.count)

    def extract_placeholders(self, text: str) -> str:
        """Put the chunk's tag, fields, time slice and id into a text."""
        return self.keys.extract(text, self.meta, self.id)

    def __repr__(self) -> str:
        return f"<Chunk {self.hex_id} {self.state}, {self.count} events, {self.size} bytes>"
