"""TLS with the interface of a plain stream, over memory buffers.

The owner's bytes lie in `chain` as plaintext, and count as unsent until their ciphertext is in the kernel;
a second chain holds the ciphertext of at most one batch, so nothing piles up unseen. `handshake` comes
first; bytes written before it is done wait for it.
"""

from __future__ import annotations

import contextlib
import ssl
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from headrace import errors
from headrace.core.chain import FLUSH_BYTES, Chain
from headrace.core.failure import closed
from headrace.core.owner import peer_of
from headrace.core.stream import READ_SIZE, Owner, Stream
from headrace.core.tls_config import TlsConfig, forget_contexts, handshake_error, reason_of, tls_version
from headrace.core.tls_engine import TlsEngine

if TYPE_CHECKING:
    import asyncio
    import socket

    from headrace.core.clock import Clock
    from headrace.core.openssl.hooks import Hooks
    from headrace.core.stream import Address
    from headrace.core.tls_engine import Engine, Terms

__all__ = ["TlsConfig", "TlsEngine", "TlsStream", "forget_contexts", "stats", "tls_version"]

_BATCH = 65_536  # plaintext encrypted in one go: four records
_SESSIONS = 1_000


class Stats:
    """Handshakes of this process, for the metrics."""

    __slots__ = ("failed", "handshakes", "session_reused")

    def __init__(self) -> None:
        self.handshakes = 0
        self.session_reused = 0
        self.failed = 0


stats = Stats()
_sessions: OrderedDict[tuple[Terms, str | None, Address], Any] = OrderedDict()


class TlsStream(Stream):
    """A TLS connection on a connected socket; errors.ConfError when the settings cannot work.

    config: a TlsConfig, or the Context or Peering of core.openssl. engine: the session behind it.
    server_hostname: clients: the name to verify and to send as SNI, unless the config names another.
    outer: the session of a TLS proxy through which this one is spoken. hooks: servers: what the handshake asks.
    established: the handshake is done. session_reused: it resumed an earlier session.
    """

    __slots__ = ("_encrypting", "_farewell", "_name", "_stash", "_unkept", "_wire", "config", "engine", "established")

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        config: Terms,
        owner: Owner | None = None,
        *,
        peer: Address | None = None,
        server_hostname: str | None = None,
        outer: Engine | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        name = config.name_of(server_hostname)
        address: Address = peer_of(sock) if peer is None else peer
        resume = _sessions.get((config, name, address)) if config.reuse_sessions else None
        self.engine: Engine = config.engine(name=name, resume=resume, outer=outer, hooks=hooks)
        super().__init__(sock, loop, clock, owner, peer=address)
        self.config = config
        self._name = name
        self._wire = Chain()
        self._encrypting = 0  # bytes of the chain whose ciphertext is in _wire
        self._stash = b""  # plaintext that a probe came upon
        self._farewell = False  # close_notify is to be sent when the chain is empty
        self._unkept = config.reuse_sessions and not config.is_server  # no session is kept yet
        self.established = False

    @property
    def session_reused(self) -> bool:
        """Whether the handshake resumed an earlier session."""
        return self.engine.session_reused

    @property
    def ragged_eof(self) -> bool:
        """The peer ended without close_notify: bytes whose length is not known otherwise may be missing."""
        return self.engine.ragged

    @property
    def version(self) -> str | None:
        """The protocol in use ("TLSv1.3")."""
        return self.engine.version

    @property
    def cipher(self) -> str | None:
        """The name of the cipher suite in use."""
        return self.engine.cipher

    @property
    def alpn(self) -> str | None:
        """The application protocol agreed on."""
        return self.engine.alpn

    @property
    def asked_name(self) -> str | None:
        """Servers: the name that the client asked for (SNI)."""
        return self.engine.asked_name

    @property
    def session_id(self) -> str | None:
        """The id of the session in hexadecimal digits."""
        return self.engine.session_id

    def peer_der(self) -> bytes | None:
        """The certificate of the peer in DER, None without one."""
        return self.engine.peer_der()

    def begin_with(self, wire: bytes) -> None:
        """Take ciphertext that was read from the socket already; before `handshake`."""
        self.engine.feed(wire)

    async def handshake(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - on the wheel
        """Shake hands; before start_reading. The stream is closed when it fails.

        errors.ConnectionFailed (kind "certificate" or "tls", or that of the connection) or errors.Timeout.
        """
        if self._reading:
            raise RuntimeError("handshake() after start_reading()")
        due = None if timeout is None else self._clock.now() + timeout
        try:
            while not self._shake():
                if self.closed:
                    raise self.error or closed()
                waiting, self.engine.waiting = self.engine.waiting, None
                if waiting is not None:
                    async with self._clock.timeout(None if due is None else max(due - self._clock.now(), 0.0)):
                        await waiting
                    continue
                await self._wait_readable(due)
                with contextlib.suppress(BlockingIOError):
                    self.engine.feed(self.sock.recv(READ_SIZE))
        except errors.Timeout:
            raise self._failed(errors.Timeout(f"TLS handshake with {self._peer_text()} timed out")) from None
        except (OSError, errors.ConnectionFailed) as error:
            raise self._failed(error) from error
        self._flush_established()

    def _failed(self, error: OSError | errors.ConnectionFailed) -> errors.ConnectionFailed:
        """End a handshake; what to raise, which has no name in the raising frame: it would be a cycle through that."""
        stats.failed += 1
        made = error if isinstance(error, errors.ConnectionFailed) else handshake_error(error, self._peer_text())
        self._end(made, soon=True)
        return made

    def _shake(self) -> bool:
        """One step; what there is to tell the peer, an alert too, is sent."""
        try:
            return self.engine.handshake()
        finally:
            self._wire.append(self.engine.outgoing())
            self.flush()

    def _flush_established(self) -> None:
        self.established = True
        stats.handshakes += 1
        if self.session_reused:
            stats.session_reused += 1
        if self.engine.buffered:
            self._ready = True
        if self.chain.length:
            self.flush()

    def _peer_text(self) -> str:
        name = f"{self._name} at " if self._name else ""
        peer = self.peer
        return name + (f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else f"{peer}")

    def start_reading(self) -> None:
        """Push bytes to the owner from now on, those too that are decrypted already."""
        super().start_reading()
        self._read_on()

    def _readable(self) -> None:
        super()._readable()
        self._read_on()

    def _read_on(self) -> None:
        """Bytes that are here already cause no readiness: come back for them."""
        if self._more() and self._reading and self.owner is not None and not self.closed:
            self._loop.call_soon(self._readable)

    def _more(self) -> bool:
        if not self.established or self.eof:
            return False
        return bool(self._stash) or self.engine.ended or self.engine.buffered

    def _pull(self, limit: int) -> bytes | None:
        data = super()._pull(limit)
        if self._more():
            self._ready = True
        return data

    def _receive(self, limit: int) -> bytes:
        stash = self._stash
        if stash:
            self._stash = stash[limit:]
            return stash[:limit]
        engine = self.engine
        try:
            data = engine.read(limit) if engine.buffered else b""
            if not data and not engine.ended:
                engine.feed(self.sock.recv(READ_SIZE))
                data = engine.read(limit)
                if not data:
                    self._answer()
        except ssl.SSLError as error:
            raise _broken("recv()", error) from error
        if not data and not engine.ended:
            raise BlockingIOError  # a part of a record, a session ticket
        if self._unkept:
            # The tickets of TLS 1.3 come before the first bytes, or with them.
            self._unkept = False
            self._keep_session()
        return data

    def _answer(self) -> None:
        """TLS itself may have something to say (a key update); beside data it goes with the next that is written."""
        out = self.engine.outgoing()
        if out:
            self._wire.append(out)
            self.flush()

    def probe(self) -> str:
        """As Stream.probe; session tickets that came meanwhile (RFC 8446 4.6.1) are no data."""
        if self.closed:
            return "error"
        if self.eof:
            return "eof"
        try:
            data = self._receive(READ_SIZE)
        except BlockingIOError:
            return "idle"
        except (OSError, errors.ConnectionFailed):
            return "error"
        if not data:
            return "eof"
        self._stash = data + self._stash
        self._ready = True
        return "data"

    def _transmit(self, data: bytes) -> bool:
        self.chain.append(data)
        chain, wire, engine = self.chain, self._wire, self.engine
        budget = FLUSH_BYTES
        while True:
            if wire.length and not self._send_wire():
                return False
            if self._encrypting:
                done, self._encrypting = self._encrypting, 0
                chain.consume(done)
                continue  # a mark's callback may have written
            if not self.established:
                return True
            try:
                if chain.length:
                    if budget <= 0:
                        return False
                    plain = chain.peek(_BATCH)
                    budget -= len(plain)
                    self._encrypting = len(plain)
                    engine.write(plain)
                elif self._farewell:
                    self._farewell = False
                    engine.say_goodbye()
                else:
                    return True
            except ssl.SSLError as error:
                raise _broken("send()", error) from error
            wire.append(engine.outgoing())

    def _send_wire(self) -> bool:
        try:
            return self._wire.send_to(self.sock)
        except OSError as error:
            if self._encrypting or self.chain.length or not self.established:
                raise
            # Only TLS's own words are lost, a goodbye or a key update: reading tells what there is to tell.
            self._wire.fail(error)
            return True

    def _sent(self) -> int:
        return self._wire.sent

    def shutdown_write(self) -> None:
        """Send close_notify and the end of the stream after the bytes of the chain. Reading goes on."""
        if not self._shut:
            self._farewell = True
        super().shutdown_write()

    def close(self) -> None:
        """As Stream.close, with close_notify."""
        if not self._shut:
            self._farewell = True
        super().close()

    def take_decrypted(self) -> bytes:
        """Plaintext that a probe came upon; for who takes the session."""
        stash, self._stash = self._stash, b""
        return stash

    def detach_session(self) -> tuple[socket.socket, Engine]:
        """Give socket and session away, for another session that is spoken through this one."""
        return self.detach(), self.engine

    def _let_go(self) -> None:
        super()._let_go()
        if self.config.reuse_sessions and self.established and not self.config.is_server:
            self._keep_session()

    def _keep_session(self) -> None:
        session = self.engine.current_session
        if session is not None:
            key = (self.config, self._name, self.peer)
            _sessions[key] = session
            _sessions.move_to_end(key)
            if len(_sessions) > _SESSIONS:
                _sessions.popitem(last=False)


def _broken(call: str, error: ssl.SSLError) -> errors.ConnectionFailed:
    return errors.ConnectionFailed(f"TLS {call} failed: {reason_of(error)}", kind="tls")
