"""A table of small states by key in memory that workers share: rate limits, counts of connections.

A key is kept as a digest of 16 bytes beside two numbers, in buckets of 16 places; a full bucket gives up the place
that was used longest ago. So there is nothing to allocate and nothing that a process which dies in the middle could
leave broken but one entry. The lock is a robust mutex in the zone itself; what is done under it takes microseconds.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from headrace.core.shared import Mutex, zone

_HEAD: Final = Mutex.SIZE
_PLACES: Final = 16
_KEY: Final = 16
_VALUE: Final = struct.Struct("<Qq")
_KEYS: Final = _PLACES * _KEY
_BUCKET: Final = _KEYS + _PLACES * _VALUE.size
_ALL: Final = struct.Struct("<" + "Qq" * _PLACES)
_FREE: Final = bytes(_KEY)
LEAST: Final = 8 * 4096
"""Bytes of the smallest table."""


class Slots(Mutex):
    """The table of a name. `with slots:` holds its lock; the other methods want it held.

    A value is (at, number): milliseconds of when it was used, and what the user of the table counts.
    """

    __slots__ = ("_buckets", "_memory", "zone")

    def __init__(self, name: str, size: int) -> None:
        self.zone = zone(name, size)
        self._memory = self.zone.memory
        self._buckets = (size - _HEAD) // _BUCKET
        super().__init__(self.zone, 0)

    def find(self, key: bytes) -> int | None:
        """The place of a key, None when it is not there."""
        digest = blake2b(key, digest_size=_KEY).digest()
        bucket = _HEAD + int.from_bytes(digest[:4], "little") % self._buckets * _BUCKET
        return self._find(bucket, digest)

    def _find(self, bucket: int, digest: bytes) -> int | None:
        at = self._memory.find(digest, bucket, bucket + _KEYS)
        while at >= 0:
            where = at - bucket
            if not where % _KEY:
                return bucket + _KEYS + where // _KEY * _VALUE.size
            at = self._memory.find(digest, at + 1, bucket + _KEYS)
        return None

    def claim(self, key: bytes, *, idle: bool = False) -> tuple[int, bool] | None:
        """The place of a key, and whether it is new (its value is for the caller to set).

        idle: only a place whose number is 0 may be taken from another key; None when there is none.
        """
        digest = blake2b(key, digest_size=_KEY).digest()
        bucket = _HEAD + int.from_bytes(digest[:4], "little") % self._buckets * _BUCKET
        memory = self._memory
        found = self._find(bucket, digest)
        if found is not None:
            return found, False
        place = self._free_place(bucket, idle=idle)
        if place is None:
            return None
        at = bucket + place * _KEY
        memory[at : at + _KEY] = digest
        return bucket + _KEYS + place * _VALUE.size, True

    def _free_place(self, bucket: int, *, idle: bool) -> int | None:
        """A place without a key, or the one that was used longest ago."""
        at = self._memory.find(_FREE, bucket, bucket + _KEYS)
        while at >= 0:
            where = at - bucket
            if not where % _KEY:
                return where // _KEY
            at = self._memory.find(_FREE, at + 1, bucket + _KEYS)
        values = _ALL.unpack_from(self._memory, bucket + _KEYS)
        if not idle:
            ages = values[::2]
            return ages.index(min(ages))
        candidates = [place for place in range(_PLACES) if not values[2 * place + 1]]
        return min(candidates, key=lambda place: int(values[2 * place]), default=None)

    def get(self, place: int) -> tuple[int, int]:
        """The value at a place."""
        at, number = _VALUE.unpack_from(self._memory, place)
        return at, number

    def set(self, place: int, at: int, number: int) -> None:
        """Set the value at a place."""
        _VALUE.pack_into(self._memory, place, at, number)
