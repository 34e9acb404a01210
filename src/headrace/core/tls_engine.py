"""One TLS session over memory buffers: ciphertext in, plaintext out and back. No I/O.

Engines nest: `outer` is the session that this one is spoken through (TLS to a proxy, and TLS through it to
the target), so what is called ciphertext here is always what goes on the wire.
"""

from __future__ import annotations

import ssl

_RECORD = 16_384


class TlsEngine:
    """A session; any method may raise ssl.SSLError.

    ended: the peer has said close_notify, or the wire has ended. ragged: it ended without close_notify, so
    what came before may be cut short.
    """

    __slots__ = ("_in", "_out", "ended", "outer", "ragged", "session")

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        resume: ssl.SSLSession | None = None,
        outer: TlsEngine | None = None,
    ) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self.session = context.wrap_bio(self._in, self._out, server_side, server_hostname, resume)
        self.outer = outer
        self.ended = False
        self.ragged = False

    @property
    def buffered(self) -> bool:
        """Whether `read` may have something without more from the wire."""
        return bool(self._in.pending or self.session.pending())

    def feed(self, wire: bytes) -> None:
        """Take ciphertext from the wire; b"" is its end."""
        if self.outer is None:
            if wire:
                self._in.write(wire)
            else:
                self._in.write_eof()
            return
        self.outer.feed(wire)
        inner = self.outer.read(1 << 30)
        if inner:
            self._in.write(inner)
        if self.outer.ended:
            self._in.write_eof()

    def read(self, limit: int) -> bytes:
        """Up to `limit` bytes of plaintext; b"" when there are none now (see `ended`)."""
        if self.ended:
            return b""
        parts: list[bytes] = []
        left = limit
        while left > 0:
            try:
                part = self.session.read(min(left, _RECORD))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.ended = True
                break
            except ssl.SSLEOFError:
                self.ended = self.ragged = True
                break
            if not part:
                self.ended = True  # close_notify, before we have sent ours
                break
            parts.append(part)
            left -= len(part)
            if not self.buffered:
                break  # asking once more would only cost an exception
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, plain: bytes) -> None:
        """Encrypt all of it; `outgoing` has the result."""
        done = self.session.write(plain)
        if done < len(plain):
            rest = memoryview(plain)
            while done < len(plain):
                done += self.session.write(rest[done:])

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done."""
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def say_goodbye(self) -> None:
        """Put close_notify into `outgoing` (RFC 8446 6.1); reading may go on."""
        try:
            self.session.unwrap()
        except ssl.SSLError:
            return  # nearly always "want read": the peer's own goodbye is not awaited

    def outgoing(self) -> bytes:
        """Ciphertext for the wire, b"" when there is none."""
        data = self._out.read()
        outer = self.outer
        if outer is None:
            return data
        if data:
            outer.write(data)
        return outer.outgoing()
