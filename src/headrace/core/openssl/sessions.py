"""Sessions to be resumed: as objects, as DER, and in memory that workers share and a reload keeps.

The shared memory is a ring of records behind an index by id (core.slots): a new session takes the place of the oldest.
A record that was overwritten is known by its position, so nothing has to be taken out, and a worker that dies in the
middle leaves at most one record that does not fit its own digest.
"""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Final

from headrace.core.openssl.failure import unusable
from headrace.core.openssl.handles import Handle, der_of
from headrace.core.openssl.library import library
from headrace.core.shared import zone
from headrace.core.slots import LEAST, Slots

_HEAD: Final = struct.Struct("<Q")
_RECORD: Final = struct.Struct("<QIB")
_LARGEST: Final = 4096
"""Bytes of a session that is kept, as in nginx."""
KEYS_AT: Final = 64
"""Where in the ring's memory the ticket keys are (see tickets)."""
_BEGIN: Final = 4096


class Session(Handle):
    """An SSL_SESSION."""

    __slots__ = ()

    def __init__(self, pointer: int, *, borrowed: bool = False) -> None:
        if borrowed:
            library().SSL_SESSION_up_ref(pointer)
        super().__init__(pointer, "SSL_SESSION")

    @classmethod
    def of(cls, der: bytes) -> Session:
        """A session from its DER; errors.ConfError when it is none."""
        lib = library()
        room = ctypes.create_string_buffer(der, len(der))
        where = ctypes.c_void_p(ctypes.addressof(room))
        pointer = lib.d2i_SSL_SESSION(None, ctypes.byref(where), len(der))
        if not pointer:
            raise unusable(lib, "d2i_SSL_SESSION() failed")
        return cls(pointer)

    def der(self) -> bytes:
        """The session in DER, its secrets in the clear."""
        return der_of(self.pointer, "SSL_SESSION")

    @property
    def id(self) -> bytes:
        """The session's id."""
        size = ctypes.c_uint()
        where = library().SSL_SESSION_get_id(self.pointer, ctypes.byref(size))
        return ctypes.string_at(where, size.value) if size.value else b""

    @property
    def timeout(self) -> int:
        """Seconds that it is good for."""
        seconds: int = library().SSL_SESSION_get_timeout(self.pointer)
        return seconds

    @property
    def resumable(self) -> bool:
        """Whether a later handshake can go on with it."""
        return bool(library().SSL_SESSION_is_resumable(self.pointer))

    def give_away(self) -> int:
        """The pointer with a reference of its own, for OpenSSL to own."""
        library().SSL_SESSION_up_ref(self.pointer)
        return self.pointer


class SharedSessions:
    """The sessions of a zone, by id. size: bytes of memory."""

    def __init__(self, name: str, size: int) -> None:
        index = max(size // 8, LEAST)
        self._index = Slots(f"ssl sessions {name}", index)
        self.zone = zone(f"ssl session data {name}", max(size - index, _BEGIN + 2 * _LARGEST))
        self.memory = self.zone.memory
        self._room = self.zone.size - _BEGIN

    @property
    def lock(self) -> Slots:
        """`with` it, for what else lies in this memory."""
        return self._index

    def store(self, identity: bytes, der: bytes, timeout: float, now: float | None = None) -> None:
        """Keep a session for `timeout` seconds, or until newer ones need its place."""
        size = _RECORD.size + len(identity) + len(der)
        if size > _LARGEST or not identity:
            return
        at = int(((time.time() if now is None else now) + timeout) * 1000)
        with self._index:
            (position,) = _HEAD.unpack_from(self.memory, 0)
            offset = position % self._room
            if offset + size > self._room:  # a record lies in one piece
                position += self._room - offset
                offset = 0
            start = _BEGIN + offset
            _RECORD.pack_into(self.memory, start, position, len(der), len(identity))
            start += _RECORD.size
            self.memory[start : start + len(identity) + len(der)] = identity + der
            _HEAD.pack_into(self.memory, 0, position + size)
            claimed = self._index.claim(identity)
            assert claimed is not None
            self._index.set(claimed[0], at, position)

    def get(self, identity: bytes, now: float | None = None) -> bytes | None:
        """The DER of a session that is still good, None when there is none."""
        with self._index:
            place = self._index.find(identity)
            if place is None:
                return None
            until, position = self._index.get(place)
            if until <= (time.time() if now is None else now) * 1000:
                return None
            start = _BEGIN + position % self._room
            found, size, name = _RECORD.unpack_from(self.memory, start)
            start += _RECORD.size
            if found != position or name != len(identity) or size > _LARGEST:
                return None
            data = self.memory[start : start + name + size]
        return data[name:] if data[:name] == identity else None

    def remove(self, identity: bytes) -> None:
        """Forget a session."""
        with self._index:
            place = self._index.find(identity)
            if place is not None:
                self._index.set(place, 0, 0)
