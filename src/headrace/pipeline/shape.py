"""From a batch to what is stored: format, group by chunk keys, reject what cannot be, choose chunks.

Nothing here changes the buffer: `Shaper.pieces` makes bytes, `Shaper.plan` says which chunks they would go
to. The intake finds room and lets the buffer store the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import Unrecoverable
from headrace.pipeline import codec
from headrace.pipeline.chunk import Chunk
from headrace.pipeline.event import Batch, Event, Record, pack_event
from headrace.pipeline.plugin import Output, overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.buffer import Buffer, Write
    from headrace.pipeline.placeholders import Meta
    from headrace.pipeline.settings import BufferSection

UNPACKABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
"""What packing raises for a record that msgpack cannot hold."""


class Piece(NamedTuple):
    """Formatted bytes. number: of events. event: the one they are, where a piece is one record."""

    data: bytes
    number: int
    event: Event | None = None


Pieces = dict[object, tuple["Meta", list[Piece]]]
"""Group -> its metadata and its pieces."""
Rejected = list[tuple[int, Record, Exception]]
"""Records that cannot be stored, and why."""


class Plan:
    """Where pieces go: appends in order, staged chunks to seal first, and chunks to make."""

    __slots__ = ("made", "replaced", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.replaced: list[Chunk] = []
        self.made: list[Chunk] = []


class Shaper:
    """Shapes the batches of one output."""

    def __init__(
        self,
        output: Output,
        section: BufferSection,
        buffer: Buffer,
        *,
        now: Callable[[], float],
        wall_ns: Callable[[], int],
    ) -> None:
        self.output = output
        self.keys = section.keys
        self.buffer = buffer
        self.limits = buffer.limits
        self.skipped = 0
        """Records that `format` left out."""
        self.formats = overrides(output, Output, "format")
        self._codec = codec.NAMES[section.compress]
        self._now = now
        self._wall_ns = wall_ns

    def pieces(self, tag: str, batch: Batch, rejected: Rejected) -> Pieces:
        """Format and group a batch; what is wrong with a record goes to `rejected`.

        Raises ValueError when a packed batch is malformed.
        """
        keys = self.keys
        simple = keys.of_tag(tag) if keys.simple else None
        if simple is not None and not self.formats and (data := self._whole(batch)) is not None:
            return {simple[0]: (simple[1], [Piece(data, batch.count)])}
        if self.formats and (made := self._formatted(tag, batch)) is not None:
            return made
        pieces: Pieces = {}
        for time, record in batch.events():
            try:
                data = self._format(tag, time, record)
                group, meta = simple or keys.of(tag, time, record)
                if data is None:
                    self.skipped += 1
                    continue
                self._check_size(data)
            except Exception as error:  # noqa: BLE001 - whatever a record provokes is that record's matter
                rejected.append((time, record, error))
                continue
            found = pieces.get(group)
            if found is None:
                found = pieces[group] = (meta, [])
            found[1].append(Piece(data, 1, (time, record)))
        return pieces

    def singles(self, tag: str, batch: Batch) -> list[Write] | None:
        """A new chunk for each record of a batch: for chunks of one record, when only the tag counts.

        None when a record needs a closer look: it cannot be formatted, is left out, or may be too large.
        """
        shape = self.output.format if self.formats else _packed
        limit = self.limits.chunk_size
        texts: list[bytes] = []
        for time, record in batch.events():
            try:
                data = shape(tag, time, record)
            except Exception:  # noqa: BLE001 - `pieces` meets it again, and does what is to be done
                return None
            if data is None or len(data) > limit:
                return None
            texts.append(data)
        store, keys, kind = self.buffer.store, self.keys, self._codec
        group, meta = keys.of_tag(tag)
        created, since = self._wall_ns(), self._now()
        return [(Chunk(store, keys, group, meta, created, since, kind), data, 1) for data in texts]

    def new_chunk(self, tag: str) -> Chunk:
        """Return an empty chunk for events of a tag, when neither time nor record counts."""
        group, meta = self.keys.of_tag(tag)
        return Chunk(self.buffer.store, self.keys, group, meta, self._wall_ns(), self._now(), self._codec)

    def plan(self, pieces: Pieces) -> Plan:
        """Choose chunks for the pieces."""
        plan = Plan()
        for group, (meta, items) in pieces.items():
            self._place(group, meta, items, plan)
        return plan

    def _whole(self, batch: Batch) -> bytes | None:
        """The batch as one piece, or None when it must be taken apart."""
        limits = self.limits
        if limits.chunk_records is not None and batch.count > limits.chunk_records:
            return None
        try:
            data = batch.packed()
        except UNPACKABLE:
            return None
        return data if len(data) <= limits.chunk_size else None

    def _formatted(self, tag: str, batch: Batch) -> Pieces | None:
        """The batch as one piece of text, where the output formats many at once; None: each record needs a look."""
        many, keys, limits = self.output.format_many, self.keys, self.limits
        if many is None or keys.fields or (limits.chunk_records is not None and batch.count > limits.chunk_records):
            return None
        times, records = batch.columns()
        if not records:
            return None
        first = min(times)
        if keys.timekey is not None and keys.slice_of(first) != keys.slice_of(max(times)):
            return None
        try:
            data = many(tag, times, records)
        except Exception:  # noqa: BLE001 - it is met again, with the record that provokes it
            return None
        if len(data) > limits.chunk_size:
            return None
        group, meta = keys.of(tag, first, {})
        return {group: (meta, [Piece(data, len(records))])}

    def _format(self, tag: str, time: int, record: Record) -> bytes | None:
        try:
            return self.output.format(tag, time, record) if self.formats else pack_event(time, record)
        except Exception as error:  # noqa: BLE001 - the output's policy decides
            return self.output.format_failed(tag, time, record, error)

    def _check_size(self, data: bytes) -> None:
        size, limit = len(data), self.limits.chunk_size
        if size > limit and self._codec:
            size = len(codec.compress(self._codec, data))
        if size > limit:
            raise Unrecoverable(
                f"a record of {size} bytes is larger than a chunk may be (chunk_limit_size, {limit} bytes)",
                kind="too_large",
            )

    def _place(self, group: object, meta: Meta, items: list[Piece], plan: Plan) -> None:
        limits = self.limits
        chunk = self.buffer.staged.get(group)
        size = sum([len(item.data) for item in items])
        count = sum([item.number for item in items])
        if size <= limits.chunk_size and (limits.chunk_records is None or count <= limits.chunk_records):
            if chunk is None or not self.buffer.fits(chunk, size, count):
                chunk = self._next(group, meta, chunk, plan)
            data = items[0].data if len(items) == 1 else b"".join([item.data for item in items])
            plan.writes.append((chunk, data, count))
            return
        size, count = (chunk.size, chunk.count) if chunk is not None else (0, 0)
        parts: list[bytes] = []
        taken = 0
        for item in items:
            over = size + len(item.data) > limits.chunk_size or (
                limits.chunk_records is not None and count + item.number > limits.chunk_records
            )
            if chunk is None or chunk.closed or (over and count):
                if chunk is not None and parts:
                    plan.writes.append((chunk, b"".join(parts), taken))
                chunk = self._next(group, meta, chunk, plan)
                parts, size, count, taken = [], 0, 0, 0
            parts.append(item.data)
            size += len(item.data)
            count += item.number
            taken += item.number
        if chunk is not None and parts:
            plan.writes.append((chunk, b"".join(parts), taken))

    def _next(self, group: object, meta: Meta, chunk: Chunk | None, plan: Plan) -> Chunk:
        """Make the chunk that follows a full one."""
        if chunk is not None and chunk.count:
            plan.replaced.append(chunk)
        made = Chunk(self.buffer.store, self.keys, group, meta, self._wall_ns(), self._now(), self._codec)
        plan.made.append(made)
        return made


def _packed(_tag: str, time: int, record: Record) -> bytes:
    return pack_event(time, record)


def size_of(pieces: Pieces) -> int:
    """Bytes of all pieces."""
    return sum([len(item.data) for _meta, items in pieces.values() for item in items])


def split(pieces: Pieces, room: int) -> tuple[Pieces, Pieces]:
    """Cut off the pieces that fit into `room` bytes, in order; return them and the rest."""
    part: Pieces = {}
    rest: Pieces = {}
    for group, (meta, items) in pieces.items():
        taken = 0
        while taken < len(items) and not rest and len(items[taken].data) <= room:
            room -= len(items[taken].data)
            taken += 1
        if taken:
            part[group] = (meta, items[:taken])
        if taken < len(items):
            rest[group] = (meta, items[taken:])
    return part, rest
