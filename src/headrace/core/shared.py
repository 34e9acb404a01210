"""Memory that workers share: anonymous mappings made before the fork.

A zone lives as long as somebody in the master holds it. A reload asks for its zones by name and size and gets those
of the generation before, so that what they hold survives it; another size is another zone.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_zones: Final[MutableMapping[tuple[str, int], Zone]] = WeakValueDictionary()


class Zone:
    """A mapping of `size` bytes at `address`, zeroes at first; the same in every process forked from here on."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.memory = mmap.mmap(-1, size)
        self._view = (ctypes.c_char * size).from_buffer(self.memory)
        self.address = ctypes.addressof(self._view)


def zone(name: str, size: int) -> Zone:
    """The zone of this name and size (bytes) in this process; made where there is none. Raises OSError."""
    found = _zones.get((name, size))
    if found is None:
        found = _zones[name, size] = Zone(name, size)
    return found
