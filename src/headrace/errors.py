"""The errors of headrace: every one knows its kind, whose fault it is, and whether to try again.

`side` tells who can mend it: the CLIENT (a downstream peer), the SERVER (an upstream peer or a
destination) or US (this process, its configuration or its machine). `retryable` is what buffers,
lanes and upstreams decide by; nothing else in the code guesses from a class name or a message.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Side(enum.Enum):
    """Who can mend an error."""

    CLIENT = "client"
    SERVER = "server"
    US = "us"


class Error(Exception):
    """Base of all errors of headrace.

    kind: a short, stable word for logs and metrics ("timeout", "refused", "bad_request", ...).
    The chained `__cause__` keeps the original exception.
    """

    kind: str = "error"
    side: Side = Side.US
    retryable: bool = False

    def __init__(
        self, message: str, *, kind: str | None = None, side: Side | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        if kind is not None:
            self.kind = kind
        if side is not None:
            self.side = side
        if retryable is not None:
            self.retryable = retryable

    @property
    def message(self) -> str:
        """The text without the kind."""
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a configuration something stands; line counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class ConfError(Error):
    """A configuration that cannot work. `hint` says what to do next; `level`: of a finding that is no error."""

    kind = "configuration"

    def __init__(self, message: str, place: Place | None = None, *, hint: str = "", level: str = "warn") -> None:
        super().__init__(message)
        self.place = place
        self.hint = hint
        self.level = level

    def __str__(self) -> str:
        at = f" in {self.place}" if self.place else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.message}{at}{hint}"


class HttpError(Error):
    """A request that gets an error status instead of its answer.

    status: the HTTP status to answer. close: the connection cannot be used after it (RFC 9112 9.6).
    """

    kind = "bad_request"
    side = Side.CLIENT

    def __init__(self, status: int, reason: str, *, close: bool = True) -> None:
        super().__init__(reason)
        self.status = status
        self.close = close


class ConnectionFailed(Error):
    """A connection could not be opened, or broke: retryable by nature."""

    kind = "connection"
    side = Side.SERVER
    retryable = True


class Timeout(ConnectionFailed):
    """A wait reached its deadline."""

    kind = "timeout"


class BufferOverflow(Error):
    """The buffer is full: the source tells its client to come back (503, or no ack)."""

    kind = "overflow"
    retryable = True


class Unrecoverable(Error):
    """A chunk or record that no retry can deliver: to the secondary or the backup, at once."""

    kind = "unrecoverable"
    side = Side.SERVER
