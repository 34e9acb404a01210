"""What is in memory at the end of a worker, where another one goes on: it goes to a file, and to the other one.

At a reload and at a zero-downtime restart the new workers serve while the old ones finish. What a destination that is
down does not take until the old worker's deadline would be lost with its memory. So it is written to the `replay`
folder of its output (see backup.py), where the same output of the new worker looks every few seconds.
"""

from __future__ import annotations

import os
from logging import ERROR
from typing import TYPE_CHECKING, Final

from headrace.pipeline.fluentfiles import META, QUEUED, ChunkMeta, write_meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.pipeline.backup import Backup, Space
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.plugin import Output

_PIECE: Final = 1 << 20


def hand_over(chunks: Sequence[Chunk], backup: Backup, output: Output, *, packed: bool) -> list[Chunk]:
    """Write chunks where the next worker finds them; return those that could not be written.

    packed: whether they hold the msgpack stream of events.
    """
    space, place = backup.space, backup.replays
    lost = []
    events = 0
    for number, chunk in enumerate(sorted(chunks, key=lambda one: one.created)):
        # The order of delivery is that of `modified`.
        created = chunk.created / 1e9
        notes = {"plugin": backup.plugin_id, "type": output.type_, "reason": "handed over", "packed": packed}
        told = ChunkMeta(chunk.id, chunk.count, created, created + number * 1e-6, chunk.meta, {"dead": notes})
        path = os.path.join(place.folder, place.name(QUEUED, chunk.id))
        try:
            space.files.makedirs(place.folder, space.dir_mode)
            if chunk.encoder is not None:
                chunk.store.seal(chunk)
            _put(space, path + META, write_meta(told))
            _put(space, path, chunk.read())
        except (OSError, ValueError) as error:
            # (A full disk needs no trace.)
            output.log.log(ERROR, "chunk %s cannot be handed over to the next worker: %r", chunk.hex_id, error)
            lost.append(chunk)
            continue
        events += chunk.count
    if events:
        output.log.warning("%d events in memory are handed over to the next worker, in %s", events, place.folder)
    return lost


def _put(space: Space, path: str, data: bytes) -> None:
    """Write a file, which is there when it is whole. Not synced: it was in memory, and there may be thousands."""
    files = space.files
    fresh = f"{path}.new"
    files.unlink(fresh)
    fd = files.create(fresh, space.mode)
    try:
        view = memoryview(data)
        while view:
            view = view[files.append(fd, view[:_PIECE]) :]
    finally:
        files.close(fd)
    files.rename(fresh, path)
