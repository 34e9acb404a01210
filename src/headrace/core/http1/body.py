"""Message bodies: a decoder consumes framed bytes and gives body bytes (RFC 9112 6 and 7.1).

A decoder keeps no input: what it cannot use yet (a piece of a size line) stays with the caller, who
offers it again with what came after it. Only CRLF ends a line here: a lone LF in chunk framing lets two
readers differ.
"""

from __future__ import annotations

import re

from headrace.errors import HttpError

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*+)?")
_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,15}(?:[ \t]+|[ \t]*;[\t\x20-\x7e\x80-\xff]*+)?\r?")
_TRAILER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
# Fields that decide framing or routing have no meaning after the body (RFC 9110 6.5.1).
_NOT_IN_TRAILERS = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"trailer", b"connection", b"te", b"content-encoding"}
)

MAX_SIZE_LINE = 4096
MAX_EXTENSIONS = 16_384  # bytes of extensions in one body
MAX_TRAILER_BYTES = 8192
MAX_TRAILERS = 100


class LengthDecoder:
    """A body of a known number of bytes. left: bytes still to come."""

    __slots__ = ("done", "left", "trailers")

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = not length
        self.trailers: list[tuple[bytes, bytes]] = []

    @staticmethod
    def frame(pieces: list[bytes]) -> bytes:
        """The pieces as they stand on the wire."""
        return b"".join(pieces)

    def decode(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Append body pieces of data[at:] to `out`; returns where it stopped."""
        end = min(at + self.left, len(data))
        if end > at:
            out.append(data if not at and end == len(data) else data[at:end])
            self.left -= end - at
        self.done = not self.left
        return end


class CloseDecoder:
    """A body that ends with the connection (responses only)."""

    __slots__ = ("done", "left", "trailers")

    def __init__(self) -> None:
        self.left = 0
        self.done = False
        self.trailers: list[tuple[bytes, bytes]] = []

    def decode(self, data: bytes, at: int, out: list[bytes]) -> int:
        """All of it is body."""
        if at < len(data):
            out.append(data[at:])
        return len(data)


_SIZE_LINE, _DATA, _DATA_END, _TRAILERS, _DONE = range(5)


class ChunkedDecoder:
    """A body in chunks. left: bytes of the current chunk still to come."""

    __slots__ = ("_extensions", "_size", "_state", "_trailer_bytes", "done", "left", "trailers")

    def __init__(self) -> None:
        self.left = 0
        self.done = False
        self.trailers: list[tuple[bytes, bytes]] = []
        self._state = _SIZE_LINE
        self._size = 0  # of the current chunk
        self._extensions = 0
        self._trailer_bytes = 0

    def frame(self, pieces: list[bytes]) -> bytes:
        """Decoded pieces in chunks again, so that what comes next on the wire continues them (no extensions)."""
        out = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        state = self._state
        if state == _DATA:
            begun = b""
            if self.left < self._size:
                begun = pieces[-1]
                out.pop()
            out.append(b"%x\r\n%b" % (len(begun) + self.left, begun))
        elif state == _DATA_END and out:
            out[-1] = out[-1][:-2]
        elif state in {_TRAILERS, _DONE}:
            out.append(b"0\r\n")
            out += [b"%b: %b\r\n" % field for field in self.trailers]
            if state == _DONE:
                out.append(b"\r\n")
        return b"".join(out)

    def decode(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Append body pieces of data[at:] to `out`; returns where it stopped.

        Raises HttpError(400) for broken framing and for more extensions or trailers than allowed.
        """
        size = len(data)
        while at < size:
            state = self._state
            if state == _DATA:
                end = min(at + self.left, size)
                out.append(data[at:end])
                self.left -= end - at
                at = end
                if self.left:
                    break
                self._state = _DATA_END
            elif state == _DATA_END:
                if data.startswith(b"\r\n", at):
                    at += 2
                    self._state = _SIZE_LINE
                elif size - at == 1 and data[at] == 13:
                    break
                else:
                    raise _broken("no CRLF after the data of a chunk")
            elif state == _SIZE_LINE:
                end = self._size_line(data, at)
                if end < 0:
                    break
                at = end
            elif state == _TRAILERS:
                end = self._trailer(data, at)
                if end < 0:
                    break
                at = end
            else:
                break
        return at

    def _size_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at, at + MAX_SIZE_LINE + 2)
        if end < 0:
            if len(data) - at > MAX_SIZE_LINE:
                raise _broken("too long size line")
            if not _SIZE_BEGUN.fullmatch(data, at):
                raise _broken("bad size line")
            return -1
        match = _SIZE.fullmatch(data, at, end)
        if match is None:
            raise _broken("bad size line")
        self._extensions += end - match.end(1)
        if self._extensions > MAX_EXTENSIONS:
            raise _broken("too many bytes of extensions")
        self.left = self._size = int(match[1], 16)
        self._state = _DATA if self.left else _TRAILERS
        return end + 2

    def _trailer(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        used = (len(data) if end < 0 else end + 2) - at
        if self._trailer_bytes + used > MAX_TRAILER_BYTES:
            raise _broken("too large trailers")
        if end < 0:
            return -1
        self._trailer_bytes += used
        if end == at:
            self._state = _DONE
            self.done = True
            return end + 2
        match = _TRAILER.fullmatch(data, at, end)
        if match is None:
            raise _broken("bad trailer line")
        if len(self.trailers) >= MAX_TRAILERS:
            raise _broken("too many trailers")
        if match[1].lower() not in _NOT_IN_TRAILERS:
            self.trailers.append((match[1], match[2].rstrip(b" \t")))
        return end + 2


def _broken(what: str) -> HttpError:
    return HttpError(400, f"invalid chunked body: {what}")


Decoder = LengthDecoder | ChunkedDecoder | CloseDecoder
