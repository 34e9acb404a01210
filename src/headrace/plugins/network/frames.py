"""Bytes of a stream to messages. No I/O; memory is bounded by the limit of a message, and work by the bytes fed.

A message longer than `limit` is left out and counted in `dropped`; what comes after it is found again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS: Final = 10
_COUNT: Final = re.compile(rb"[\r\n ]*([0-9]{1,10}) ")


class FrameError(ValueError):
    """The stream cannot be followed any more."""


class Frames(Protocol):
    """Takes a stream apart."""

    dropped: int

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the messages that are complete with this piece. Raises FrameError."""
        ...


class Delimited:
    """Messages that end with a delimiter, which may have several bytes."""

    __slots__ = ("_delimiter", "_discarding", "_limit", "_partial", "_seen", "dropped")

    def __init__(self, delimiter: bytes, limit: int) -> None:
        self._delimiter = delimiter
        self._limit = limit
        self._partial = bytearray()
        self._seen = 0  # of _partial, where no delimiter begins
        self._discarding = False
        self.dropped = 0

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._partial)

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the messages that are complete with this piece."""
        delimiter, partial = self._delimiter, self._partial
        if partial or self._discarding:
            partial += data
            found = partial.find(delimiter, self._seen)
            if found < 0:
                self._wait()
                return ()
            if self._discarding:
                self._discarding = False
                del partial[: found + len(delimiter)]
            data = bytes(partial)
            partial.clear()
        self._seen = 0
        messages = data.split(delimiter)
        partial += messages.pop()
        if partial:
            self._wait()
        limit = self._limit
        if len(data) > limit and any(len(message) > limit for message in messages):
            kept = [message for message in messages if len(message) <= limit]
            self.dropped += len(messages) - len(kept)
            return kept
        return messages

    def _wait(self) -> None:
        """There is no delimiter yet: remember how far we looked, give up what is too long."""
        partial = self._partial
        rest = len(self._delimiter) - 1
        if not self._discarding and len(partial) > self._limit + rest:
            self._discarding = True
            self.dropped += 1
        if self._discarding:
            del partial[: max(len(partial) - rest, 0)]
        self._seen = max(len(partial) - rest, 0)


class Counted:
    """Messages that begin with their length in bytes and a space (RFC 6587 3.4.1).

    White space between two of them is skipped: some senders end a message with a newline that they do not count.
    """

    __slots__ = ("_limit", "_need", "_partial", "_skip", "dropped")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._need = 0  # bytes that _partial must have before it is worth another look
        self._skip = 0
        self.dropped = 0

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._partial)

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the messages that are complete with this piece. Raises FrameError."""
        if self._skip:
            cut = min(self._skip, len(data))
            self._skip -= cut
            data = data[cut:]
        if self._partial:
            self._partial += data
            if len(self._partial) < self._need:
                return ()
            data = bytes(self._partial)
            self._partial.clear()
        self._need = 0
        messages: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            match = _COUNT.match(data, at)
            if match is None:
                if not messages:  # else what came before the fault goes first, and the next piece finds it
                    at = size - _unfinished(data[at:])
                break
            start, count = match.end(), int(match[1])
            end = start + count
            if count > self._limit:
                self.dropped += 1
                self._skip = max(end - size, 0)
                at = min(end, size)
            elif end > size:
                self._need = end - at
                break
            else:
                messages.append(data[start:end])
                at = end
        self._partial += data[at:]
        return messages


def _unfinished(data: bytes) -> int:
    """How many bytes of a length there are, whose end has not come yet. Raises FrameError for anything else."""
    text = data.lstrip(b"\r\n ")
    if text and (len(text) > _DIGITS or not text.isdigit()):
        raise FrameError(f"a message begins with {text[:20]!r} and not with its length")
    return len(text)
