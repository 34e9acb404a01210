"""Operating system errors as errors of headrace, in the words nginx's users know."""

from __future__ import annotations

import errno
import os

from headrace import errors

_KINDS = {
    errno.ECONNRESET: "reset",
    errno.EPIPE: "broken_pipe",
    errno.ECONNREFUSED: "refused",
    errno.ENOENT: "refused",  # a unix socket that is not there
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
}


def describe(call: str, number: int) -> str:
    """The text for one errno: `recv() failed (104: Connection reset by peer)`."""
    return f"{call} failed ({number}: {os.strerror(number)})"


def failure(call: str, error: OSError | errors.ConnectionFailed) -> errors.ConnectionFailed:
    """The error of a failed system call; an error of ours is passed through."""
    if isinstance(error, errors.ConnectionFailed):
        return error
    number = error.errno
    text = describe(call, number) if number and number > 0 else f"{call} failed ({error})"
    if number == errno.ETIMEDOUT:
        made: errors.ConnectionFailed = errors.Timeout(text)
    else:
        made = errors.ConnectionFailed(text, kind=_KINDS.get(number or 0))
        if made.kind == "descriptors":
            made.side = errors.Side.US
    made.__cause__ = error
    return made


def timed_out(call: str) -> errors.Timeout:
    """The error of a wait that reached its deadline."""
    return errors.Timeout(f"{call} timed out (110: Connection timed out)")


def closed() -> errors.ConnectionFailed:
    """The error of using a stream that is closed."""
    return errors.ConnectionFailed("the connection is closed", kind="closed")


def internal(error: Exception) -> errors.ConnectionFailed:
    """The error of a connection whose owner failed."""
    made = errors.ConnectionFailed(f"the connection was ended by an internal error: {error!r}", kind="internal")
    made.side = errors.Side.US
    made.__cause__ = error
    return made
