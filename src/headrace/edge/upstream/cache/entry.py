"""One kept answer: a file with what is known of it, its head, its body.

The file is written under another name and renamed when the answer is whole: a reader sees all of it or nothing. What
is damaged or of another version is no entry.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.parse import ProtocolError, parse_response_head

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead

MAGIC: Final = b"HRCACHE1"
_SIZES: Final = struct.Struct("<II")
_LONGEST: Final = 1 << 20


class Entry:
    """An open entry. meta: key, valid, while_updating, if_error, vary, variant; body: where it begins; size: of it."""

    def __init__(self, path: str, fd: int, meta: dict[str, Any], head: ResponseHead, body: int, size: int) -> None:
        self.path = path
        self.fd = fd
        self.meta = meta
        self.head = head
        self.body = body
        self.size = size

    @property
    def valid(self) -> float:
        """Seconds since the epoch until which it is fresh."""
        return float(self.meta["valid"])

    def close(self) -> None:
        """Be done with the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def take_fd(self) -> int:
        """The descriptor, which the caller closes."""
        fd, self.fd = self.fd, -1
        return fd


def read_entry(path: str, key: bytes | None) -> Entry | None:
    """Open an entry; None when there is none for this key (key None: for any)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        total = os.fstat(fd).st_size
        start = os.pread(fd, 4096, 0)
        if start[:8] != MAGIC:
            raise ValueError(path)
        known, raw = _SIZES.unpack_from(start, 8)
        if known + raw > min(_LONGEST, total):
            raise ValueError(path)
        begin = 8 + _SIZES.size
        if len(start) < begin + known + raw:
            start = os.pread(fd, begin + known + raw, 0)
        meta = json.loads(start[begin : begin + known])
        head = parse_response_head(start[begin + known : begin + known + raw], b"GET")
        if key is None:
            bytes.fromhex(meta["key"])
        elif meta["key"] != key.hex():
            raise ValueError(path)
        float(meta["valid"])
    except (OSError, ValueError, KeyError, TypeError, struct.error, ProtocolError):
        os.close(fd)
        return None
    body = begin + known + raw
    return Entry(path, fd, meta, head, body, total - body)


def _prefix(meta: dict[str, Any], raw: bytes) -> bytes:
    text = json.dumps(meta).encode()
    return MAGIC + _SIZES.pack(len(text), len(raw)) + text + raw


class EntryWriter:
    """An entry that is being written. OSError where the disk does not take it."""

    def __init__(self, folder: str, meta: dict[str, Any], raw: bytes) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.fd, self.temp = tempfile.mkstemp(dir=folder, prefix=".new-")
        self.size = 0
        self.write(_prefix(meta, raw))

    def write(self, data: bytes) -> None:
        """Append."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.size += len(data)

    def keep(self, path: str) -> None:
        """The answer is whole: give it its name."""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.rename(self.temp, path)
        self.temp = ""
        self.drop()

    def drop(self) -> None:
        """Be done with it; what is not kept is removed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.temp:
            with contextlib.suppress(OSError):
                os.unlink(self.temp)
            self.temp = ""


def rewrite_entry(entry: Entry, meta: dict[str, Any], raw: bytes, folder: str) -> int:
    """Write what is known of an entry anew, with its old body; returns the size. Raises OSError."""
    writer = EntryWriter(folder, meta, raw)
    try:
        at, end = entry.body, entry.body + entry.size
        while at < end:
            data = os.pread(entry.fd, min(1 << 20, end - at), at)
            if not data:
                break
            writer.write(data)
            at += len(data)
        size = writer.size
        writer.keep(entry.path)
    finally:
        writer.drop()
    return size
