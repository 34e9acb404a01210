"""A connection before its first request: a PROXY protocol header may come, and a TLS handshake after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.core import proxy_protocol
from headrace.core.openssl.failure import OpensslError, UnexpectedEof
from headrace.core.openssl.hooks import UNRECOGNIZED_NAME, Refused
from headrace.core.stream import Stream
from headrace.core.tls import TlsStream
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    import asyncio
    import socket

    from headrace.core.clock import Clock
    from headrace.core.owner import Address
    from headrace.edge.tlsport import PortTls

_HANDSHAKE: Final = 0x16
_SSL2: Final = 0x80
"""What the first byte of a TLS client is: a record's type, or a bit of the length in the old form (RFC 5246 E.2)."""


class Accepted:
    """A fresh connection. header: what its PROXY protocol header said. begun: bytes that came right behind it.

    stream: without TLS, once `open` was called.
    """

    def __init__(self, sock: socket.socket, peer: Address, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.peer = peer
        self.header: proxy_protocol.ProxyHeader | None = None
        self.begun = b""
        self.stream: Stream | None = None
        self._sock = sock
        self._loop = loop
        self._clock = clock

    async def begin(self, timeout: float, tls: PortTls | None, *, proxied: bool) -> Stream:  # noqa: ASYNC109 - on the wheel
        """The stream for its owner, within `timeout` seconds for each step; in the clear when the client speaks no TLS.

        Raises ConnectionFailed, of the kind "proxy_protocol" for a broken header; the connection is closed then.
        """
        stream = await self.open(timeout, proxied=proxied)
        if tls is None:
            return stream
        begun, self.begun = self.begun, b""
        if not begun:
            try:
                begun = await stream.read(timeout=timeout)
            except BaseException:
                stream.abort()
                raise
            if not begun:
                stream.close()
                raise ConnectionFailed("peer closed connection in SSL handshake while SSL handshaking", kind="tls")
        if begun[0] != _HANDSHAKE and not begun[0] & _SSL2:
            self.begun = begun
            return stream
        return await self.encrypt(stream, tls, timeout, begun)

    @property
    def client(self) -> str:
        """The peer's address for a log line."""
        return str(self.peer[0]) if isinstance(self.peer, tuple) and self.peer else "unix:"

    async def open(self, timeout: float, *, proxied: bool) -> Stream:  # noqa: ASYNC109 - on the wheel
        """The stream behind a PROXY protocol header, if one is to come. Raises as `begin`."""
        stream = self.stream = Stream(self._sock, self._loop, self._clock, peer=self.peer)
        try:
            if proxied:
                await self._read_header(stream, timeout)
        except ConnectionFailed:
            stream.close()
            raise
        except BaseException:
            stream.abort()
            raise
        return stream

    async def encrypt(self, stream: Stream, tls: PortTls, timeout: float, begun: bytes = b"") -> TlsStream:  # noqa: ASYNC109 - on the wheel
        """Shake hands on an open stream. begun: what was read of it already. Raises as `begin`."""
        tls = tls.of(stream)
        encrypted = TlsStream(stream.detach(), self._loop, self._clock, tls.terms, peer=self.peer, hooks=tls.hooks)
        tls.begin(encrypted, self.header)
        if begun:
            encrypted.begin_with(begun)
        try:
            await self._shake(encrypted, timeout)
            await tls.check(encrypted, self._clock)
        except ConnectionFailed:
            encrypted.close()
            encrypted.error = None  # it would keep the stream, by its traceback
            raise
        except BaseException:
            encrypted.abort()
            raise
        finally:
            tls.end(encrypted)
        return encrypted

    async def _read_header(self, stream: Stream, timeout: float) -> None:  # noqa: ASYNC109 - on the wheel
        due = self._clock.now() + timeout
        data = b""
        while True:
            more = await stream.read(proxy_protocol.MAX_V2, max(due - self._clock.now(), 0.001))
            data += more
            try:
                found = proxy_protocol.parse(data) if more else None
            except proxy_protocol.BrokenHeader:
                found, more = None, b""
            if found is not None:
                self.header, length = found
                self.begun = data[length:]
                return
            if not more:
                text = data[: proxy_protocol.MAX_V1].decode("latin-1").encode("unicode_escape").decode()
                raise ConnectionFailed(f'broken header: "{text}" while reading PROXY protocol', kind="proxy_protocol")

    @staticmethod
    async def _shake(stream: TlsStream, timeout: float) -> None:  # noqa: ASYNC109 - on the wheel
        try:
            await stream.handshake(timeout)
        except ConnectionFailed as error:
            cause = error.__cause__
            reason = cause.__cause__ if cause is not None else None
            if isinstance(reason, Refused) and reason.alert == UNRECOGNIZED_NAME:
                text = "handshake rejected"
            elif isinstance(cause, UnexpectedEof):
                text = "peer closed connection in SSL handshake"
            elif isinstance(cause, OpensslError):
                text = f"SSL_do_handshake() failed (SSL: {cause.queue})"
            else:
                text = f"SSL_do_handshake() failed: {error.message}"
            raise ConnectionFailed(f"{text} while SSL handshaking", kind=error.kind) from error
