"""inotify through the C library: which files have something new.

ctypes and four functions, in place of a dependency: the packages that wrap inotify bring threads, their own buffers
or a class for each event, and none can watch an open descriptor.

- A file's watch fires once and is gone (IN_ONESHOT): while a busy file is read, its writer makes no more events. It
  is armed again when the file was read to its end, and then the file is looked at once more.
- A watch is set on the open descriptor, through /proc/self/fd, so that it is of that very file, whatever its name
  leads to now.
- A folder's watch tells which names appear in it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

_MODIFY: Final = 0x2
_ATTRIB: Final = 0x4
_MOVED_TO: Final = 0x80
_MOVED_FROM: Final = 0x40
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
OVERFLOW: Final = 0x4000
IGNORED: Final = 0x8000
_ONLYDIR: Final = 0x01000000
_ONESHOT: Final = 0x80000000
_FILE: Final = _MODIFY | _ATTRIB | _MOVE_SELF | _DELETE_SELF | _ONESHOT
_FOLDER: Final = _CREATE | _MOVED_TO | _MOVED_FROM | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_HEAD: Final = struct.Struct("iIII")
_READ: Final = 1 << 12


class Inotify:
    """One inotify instance. Raises OSError when the system gives none."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            init = library.inotify_init1
            self._add = library.inotify_add_watch
            self._remove = library.inotify_rm_watch
        except AttributeError:
            raise OSError(errno.ENOSYS, "the C library has no inotify") from None
        self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        self.fd = int(init(os.O_NONBLOCK | os.O_CLOEXEC))
        if self.fd < 0:
            raise _error()

    def watch_file(self, fd: int) -> int:
        """Arm the watch of an open file; its number. Raises OSError."""
        return self._watch(b"/proc/self/fd/%d" % fd, _FILE)

    def watch_path(self, path: str) -> int:
        """Arm the watch of a file by its name. Raises OSError."""
        return self._watch(os.fsencode(path), _FILE)

    def watch_folder(self, path: str) -> int:
        """Watch for names that come and go. Raises OSError."""
        return self._watch(os.fsencode(path), _FOLDER)

    def _watch(self, path: bytes, mask: int) -> int:
        number = int(self._add(self.fd, path, mask))
        if number < 0:
            raise _error()
        return number

    def forget(self, number: int) -> None:
        """End a watch; it may be gone already."""
        self._remove(self.fd, number)

    def read(self) -> list[tuple[int, int, bytes]]:
        """Return (number of the watch, mask, name in a folder) of some of what happened; [] when that is all."""
        try:
            data = os.read(self.fd, _READ)
        except (BlockingIOError, InterruptedError):
            return []
        events = []
        at = 0
        while at < len(data):
            number, mask, _cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            events.append((number, mask, data[at : at + length].rstrip(b"\0")))
            at += length
        return events

    def close(self) -> None:
        """Give it back."""
        os.close(self.fd)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
