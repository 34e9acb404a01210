"""Ids of batches that were accepted: what a buffer remembers, and what its twins in other workers do.

A batch that is sent again may come to another worker. So buffers on disk note ids in a table in memory that all
workers of all generations share (2 MiB, made by the master before it forks). It has no lock: an id is 16 bytes in
a bucket of eight, the newest first. Two workers that write to one bucket at the same time may lose an id, which then
costs a repetition; a false id would take 128 bits that happen to fit.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from functools import cache
from hashlib import blake2b
from typing import Final

SEEN_LIMIT: Final = 65_536
"""Ids of accepted batches that are remembered."""
_ID: Final = 16
_BUCKET: Final = 8 * _ID
_BUCKETS: Final = 1 << 14


class SharedTable:
    """The latest ids of all workers, about 131,072 of them; older ones go bucket by bucket."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BUCKETS * _BUCKET)

    @staticmethod
    def _place(key: bytes) -> int:
        return int.from_bytes(key[:4], "big") % _BUCKETS * _BUCKET

    def add(self, key: bytes) -> None:
        """Remember a key of 16 bytes."""
        if key in self:
            return
        start = self._place(key)
        memory = self._memory
        memory[start : start + _BUCKET] = key + memory[start : start + _BUCKET - _ID]

    def __contains__(self, key: bytes) -> bool:
        start = self._place(key)
        bucket = self._memory[start : start + _BUCKET]
        at = bucket.find(key)
        while at % _ID:
            if at < 0:
                return False
            at = bucket.find(key, at + 1)
        return True


@cache
def shared_table() -> SharedTable:
    """The table of this process and of those that it forks. To be called before the fork."""
    return SharedTable()


class Seen:
    """The ids of batches that were accepted, the latest `limit` of them.

    table, scope: also what the twins of this buffer in other workers have accepted; scope: what the twins have in
    common and no other buffer has.
    """

    __slots__ = ("_ids", "_limit", "_scope", "_table")

    def __init__(self, limit: int = SEEN_LIMIT, table: SharedTable | None = None, scope: bytes = b"") -> None:
        self._ids: OrderedDict[bytes, None] = OrderedDict()
        self._limit = limit
        self._table = table
        self._scope = blake2b(scope, digest_size=16).digest()

    def add(self, batch_id: bytes) -> bytes | None:
        """Remember an id; return the one that is forgotten for it."""
        self._ids[batch_id] = None
        self._ids.move_to_end(batch_id)
        if self._table is not None:
            self._table.add(self._key(batch_id))
        return self._ids.popitem(last=False)[0] if len(self._ids) > self._limit else None

    def _key(self, batch_id: bytes) -> bytes:
        return blake2b(batch_id, digest_size=_ID, key=self._scope).digest()

    def __contains__(self, batch_id: bytes) -> bool:
        return batch_id in self._ids

    def elsewhere(self, batch_id: bytes) -> bool:
        """Whether a twin has accepted the id."""
        return self._table is not None and self._key(batch_id) in self._table

    def __len__(self) -> int:
        return len(self._ids)
