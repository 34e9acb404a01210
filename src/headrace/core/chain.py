"""Chain: the unsent bytes of one socket.

A chain has one owner, who appends and flushes. The cost of an append or a flush does not depend on what
lies in the chain, and never on another chain. A flush is one gathered write: a lone segment goes by
send(), several by one sendmsg(), a piece of a file by sendfile(). No byte is copied. The usual chain is
empty or holds one segment, so the queue exists only while there are more.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Mark = Callable[[BaseException | None], object]

IOV_MAX = 1024
GATHER_BYTES = 262_144  # more than a socket takes at once: longer lists would be built in vain
FLUSH_BYTES = 2_097_152  # then the neighbours' turn, as nginx's sendfile_max_chunk
FILE_READ = 65_536
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
# The kernel cannot send this file to this socket: read and send instead.
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EBADF})


class Sendable(Protocol):
    """What a chain needs of a socket (non-blocking)."""

    def send(self, data: bytes | memoryview, flags: int = ..., /) -> int:
        """As socket.send."""

    def sendmsg(self, buffers: Iterable[Any], ancdata: Iterable[Any] = ..., flags: int = ..., /) -> int:
        """As socket.sendmsg."""

    def fileno(self) -> int:
        """As socket.fileno."""


class FilePiece:
    """`length` bytes of the open file `fd` from `offset`. The descriptor stays the caller's; see Chain.mark."""

    __slots__ = ("fd", "length", "offset")

    def __init__(self, fd: int, offset: int, length: int) -> None:
        self.fd = fd
        self.offset = offset
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self, skip: int, limit: int) -> bytes:
        """Bytes of the piece after its first `skip`; OSError when the file has become shorter."""
        data = os.pread(self.fd, min(self.length - skip, limit), self.offset + skip)
        if not data:
            raise _truncated()
        return data


class Chain:
    """Unsent bytes in order.

    length: unsent bytes. total: bytes ever appended. peak_segments: the most segments it ever held.
    error: why no more bytes are taken (the connection is lost), or None.
    """

    __slots__ = ("_first", "_marks", "_rest", "_skip", "error", "length", "peak_segments", "total")

    def __init__(self) -> None:
        self._first: bytes | FilePiece | None = None
        self._skip = 0  # bytes of the first segment that are sent
        self._rest: deque[bytes | FilePiece] | None = None
        self._marks: deque[tuple[int, Mark]] | None = None
        self.length = 0
        self.total = 0
        self.peak_segments = 0
        self.error: BaseException | None = None

    @property
    def segments(self) -> int:
        """How many pieces wait."""
        if self._first is None:
            return 0
        return 1 + (len(self._rest) if self._rest else 0)

    @property
    def sent(self) -> int:
        """Bytes given to the kernel so far."""
        return self.total - self.length

    def append(self, data: bytes) -> None:
        """Add bytes at the end. Nothing is sent. After an error the bytes are dropped."""
        if data:
            self._add(data, len(data))

    def append_file(self, fd: int, offset: int, length: int) -> None:
        """Add `length` bytes of a file, from `offset`. Keep `fd` open until a mark after it is called."""
        if length > 0:
            self._add(FilePiece(fd, offset, length), length)

    def _add(self, segment: bytes | FilePiece, size: int) -> None:
        if self.error is not None:
            return
        self.length += size
        self.total += size
        if self._first is None:
            self._first = segment
            if not self.peak_segments:
                self.peak_segments = 1
            return
        rest = self._rest
        if rest is None:
            rest = self._rest = deque()
        rest.append(segment)
        if len(rest) >= self.peak_segments:
            self.peak_segments = len(rest) + 1

    def mark(self, callback: Mark) -> None:
        """Call `callback(None)` when every byte appended so far is in the kernel; at once when it is.

        When the bytes cannot get there: `callback(error)`.
        """
        if self.error is not None or not self.length:
            callback(self.error)
            return
        if self._marks is None:
            self._marks = deque()
        self._marks.append((self.total, callback))

    def write_to(self, sock: Sendable, data: bytes) -> bool:
        """append and send_to in one step; the short way when nothing was pending. True when empty."""
        if self._first is not None or self.error is not None or not data:
            self.append(data)
            return self.send_to(sock)
        size = len(data)
        self.total += size
        if not self.peak_segments:
            self.peak_segments = 1
        try:
            sent = sock.send(data)
        except BlockingIOError:
            sent = 0
        except BaseException:
            self.length = size
            self._first = data
            raise
        if sent == size:
            return True
        self.length = size - sent
        self._first = data
        self._skip = sent
        return False

    def send_to(self, sock: Sendable) -> bool:
        """One gathered write; more only while the kernel took all of the one before. True when empty.

        OSError: the connection is broken (EAGAIN is not an error: the answer is False).
        """
        budget = FLUSH_BYTES
        try:
            while self._first is not None and budget > 0:
                offered, sent = self._send_some(sock)
                self._advance(sent)
                budget -= sent
                if sent < offered:
                    break
        except BlockingIOError:
            pass
        if self._marks:
            self._fire_marks()
        return not self.length

    def _send_some(self, sock: Sendable) -> tuple[int, int]:
        """One system call: (bytes offered, bytes taken)."""
        first = self._first
        assert first is not None
        if isinstance(first, FilePiece):
            return self._send_file(sock, first)
        data: bytes | memoryview = memoryview(first)[self._skip :] if self._skip else first
        if not self._rest:
            return len(data), sock.send(data)
        buffers: list[bytes | memoryview] = [data]
        offered = len(data)
        flags = 0
        for segment in self._rest:
            if offered >= GATHER_BYTES or len(buffers) == IOV_MAX:
                break
            if isinstance(segment, FilePiece):
                flags = _MSG_MORE  # the head goes with the first bytes of the file in one packet
                break
            buffers.append(segment)
            offered += len(segment)
        return offered, sock.sendmsg(buffers, [], flags)

    def _send_file(self, sock: Sendable, piece: FilePiece) -> tuple[int, int]:
        left = min(piece.length - self._skip, FLUSH_BYTES)
        try:
            sent = os.sendfile(sock.fileno(), piece.fd, piece.offset + self._skip, left)
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            data = piece.read(self._skip, FILE_READ)
            return len(data), sock.send(data)
        if not sent:
            raise _truncated()
        return left, sent

    def peek(self, limit: int) -> bytes:
        """Up to `limit` unsent bytes from the front, without taking them; OSError from reading a file.

        For a layer that changes the bytes on their way: it calls `consume` when what it made of them is in
        the kernel.
        """
        first = self._first
        if first is None:
            return b""
        if isinstance(first, FilePiece):
            return first.read(self._skip, limit)
        if not self._rest:
            return first if not self._skip and len(first) <= limit else first[self._skip : self._skip + limit]
        parts = [first[self._skip : self._skip + limit]]
        size = len(parts[0])
        for segment in self._rest:
            if size >= limit or isinstance(segment, FilePiece):
                break
            part = segment if len(segment) <= limit - size else segment[: limit - size]
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def consume(self, count: int) -> None:
        """The first `count` bytes are in the kernel."""
        self._advance(count)
        if self._marks:
            self._fire_marks()

    def _advance(self, count: int) -> None:
        self.length -= count
        while count:
            first = self._first
            assert first is not None
            left = len(first) - self._skip
            if count < left:
                self._skip += count
                return
            count -= left
            self._skip = 0
            rest = self._rest
            self._first = rest.popleft() if rest else None
        if self._first is None:
            self._rest = None  # an empty deque is 760 bytes, and most connections are idle

    def fail(self, error: BaseException) -> None:
        """The connection is lost: drop the bytes, tell every mark, take no more bytes. Once."""
        if self.error is not None:
            return
        self.error = error
        self._first = self._rest = None
        self._skip = 0
        self.length = 0
        self._fire_marks()

    def _fire_marks(self) -> None:
        raised: Exception | None = None
        while self._marks and (self.error is not None or self._marks[0][0] <= self.total - self.length):
            callback = self._marks.popleft()[1]
            try:
                callback(self.error)
            except Exception as error:  # noqa: BLE001 - the other marks must hear of it; raised below
                raised = raised or error
        if not self._marks:
            self._marks = None
        if raised is not None:
            raise raised


def _truncated() -> OSError:
    return OSError(errno.EIO, "file was truncated while it was sent")
