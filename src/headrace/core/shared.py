"""Memory that workers share: anonymous mappings made before the fork.

A zone lives as long as somebody in the master holds it. A reload asks for its zones by name and size and gets those
of the generation before, so that what they hold survives it; another size is another zone.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import TracebackType

_zones: Final[MutableMapping[tuple[str, int], Zone]] = WeakValueDictionary()


class Zone:
    """A mapping of `size` bytes at `address`, zeroes at first; the same in every process forked from here on."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.memory = mmap.mmap(-1, size)
        self._view = (ctypes.c_char * size).from_buffer(self.memory)
        self.address = ctypes.addressof(self._view)


def forget() -> None:
    """Let every zone be made anew from now on; who has one keeps it. For tests that must not see each other's data."""
    _zones.clear()


def zone(name: str, size: int) -> Zone:
    """The zone of this name and size (bytes) in this process; made where there is none. Raises OSError."""
    found = _zones.get((name, size))
    if found is None:
        found = _zones[name, size] = Zone(name, size)
    return found


_libc: Final = ctypes.PyDLL(None)
_lock: Final = _libc.pthread_mutex_lock
_unlock: Final = _libc.pthread_mutex_unlock


class Mutex:
    """A lock at an offset of a zone, held in a `with`. A holder that died leaves it to the next one.

    What is done under it takes microseconds: who waits, waits with its loop.
    """

    SIZE: ClassVar[int] = 128
    """Bytes that it takes."""
    _READY: ClassVar[bytes] = b"hrmutex1"
    _READY_AT: ClassVar[int] = 64

    __slots__ = ("_mutex",)

    def __init__(self, where: Zone, offset: int) -> None:
        self._mutex = ctypes.c_void_p(where.address + offset)
        at = offset + self._READY_AT
        if where.memory[at : at + 8] != self._READY:
            attributes = (ctypes.c_char * 64)()
            _libc.pthread_mutexattr_init(attributes)
            _libc.pthread_mutexattr_setpshared(attributes, 1)
            _libc.pthread_mutexattr_setrobust(attributes, 1)
            _libc.pthread_mutex_init(self._mutex, attributes)
            where.memory[at : at + 8] = self._READY

    def __enter__(self) -> None:
        if _lock(self._mutex) == errno.EOWNERDEAD:
            _libc.pthread_mutex_consistent(self._mutex)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _unlock(self._mutex)
