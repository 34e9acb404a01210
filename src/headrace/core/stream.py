"""Stream: one non-blocking connection on the loop, and its chain of unsent bytes.

The stream owns the descriptor (add_reader and add_writer, no transport), so that what is unsent is in one
place, which its owner sees. Rules:

- One recv per readiness; a write tries the kernel at once, and waits for writability only when it must.
- Pausing is lazy: the reader is removed only when bytes come that nobody wants.
- `connection_lost` comes exactly once, and never from within a call that the owner makes.
- An exception of the owner ends its connection, and no other.

Two ways to read: an `Owner` gets the bytes pushed, or, without an owner, `read` pulls them. No call makes
a task, and an idle stream holds no timer, no future and no closure.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from headrace import errors
from headrace.core.chain import Chain
from headrace.core.clock import NEVER, Timed, Waiter
from headrace.core.failure import closed, failure, internal, timed_out
from headrace.core.owner import Address, Owner, Stats, peer_of, reset_on_close
from headrace.core.watch import Watch, watch

if TYPE_CHECKING:
    import asyncio

    from headrace.core.clock import Clock

__all__ = ["READ_SIZE", "Address", "Owner", "Stats", "Stream", "stats"]

READ_SIZE = 65_536
CLOSE_TIMEOUT = 60.0  # seconds without progress that a closing stream waits when it has no send_timeout
stats = Stats()


class Stream(Timed):
    """A connected tcp or unix socket; `core.tls.TlsStream` has the same interface.

    closed: no more bytes are taken. eof: the peer has shut down its writing side. error: why it was lost.
    peer: its address ((host, port, ...), or a path for unix). uses: how often a pool took it back. read_size: of
    one pushed read. send_timeout: seconds without progress until a peer that does not read is aborted, or None.
    """

    __slots__ = (
        "_clock", "_dead", "_loop", "_plain", "_reader", "_reading", "_ready", "_shut", "_told", "_waiter", "_writer",
        "chain", "closed", "eof", "error", "fd", "owner", "peer", "read_size", "send_timeout", "sock", "uses",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        owner: Owner | None = None,
        *,
        peer: Address | None = None,
    ) -> None:
        self.due, self.tick = NEVER, 0
        if sock.gettimeout() != 0.0:
            sock.setblocking(False)
        self.sock = sock
        self.fd = sock.fileno()
        self.chain = Chain()
        self.owner = owner
        self.peer: Address = peer_of(sock) if peer is None else peer
        self.send_timeout: float | None = None
        self.closed = False
        self.eof = False
        self.error: errors.ConnectionFailed | None = None
        self.read_size = READ_SIZE
        self.uses = 0
        self._loop = loop
        self._clock = clock
        self._plain = type(self) is Stream  # bytes pass unchanged: no call of _receive, _transmit
        self._reading = False  # the owner wants bytes
        self._reader: Watch | None = None  # add_reader is in force
        self._writer = False  # add_writer is in force
        self._ready = False  # pull mode: there may be bytes that no readiness will announce
        self._shut = False  # our writing side is to be shut down when the chain is empty
        self._dead = False  # the descriptor is closed
        self._told = False  # connection_lost was called
        self._waiter: Waiter | None = None
        stats.opened += 1

    @property
    def local(self) -> Address:
        """Our own address."""
        return self.sock.getsockname()  # type: ignore[no-any-return]

    def set_owner(self, owner: Owner | None) -> None:
        """Hand the stream over. None: whoever holds it reads by `read`.

        A loss that no owner has heard of yet goes to the new one.
        """
        self.owner = owner
        if self._dead and not self._told and owner is not None:
            self._loop.call_soon(self._report)

    def start_reading(self) -> None:
        """Push bytes to the owner from now on."""
        self._reading = True
        if not (self._reader or self.eof or self.closed):
            self._arm_reader()

    def pause_reading(self) -> None:
        """Push no bytes for a while. An end or a loss may then go unnoticed until reading starts again."""
        self._reading = False

    def _receive(self, limit: int) -> bytes:
        """Bytes of the peer, b"" at the end; BlockingIOError when there are none now."""
        return self.sock.recv(limit)

    def _readable(self) -> None:
        owner = self.owner
        if owner is None or not self._reading:
            self._unwanted()
            return
        try:
            data = self.sock.recv(self.read_size) if self._plain else self._receive(self.read_size)
        except BlockingIOError:
            return
        except (OSError, errors.ConnectionFailed) as error:
            self._end(failure("recv()", error))
            return
        try:
            if data:
                owner.data_received(data)
            else:
                self.eof = True
                self._drop_reader()
                owner.eof_received()
        except Exception as error:  # noqa: BLE001 - reported; it must end this connection only
            self._owner_failed(error)

    def _unwanted(self) -> None:
        self._ready = True
        if (waiter := self._waiter) is None or waiter.future.done():
            self._drop_reader()
            return
        self._clock.suspend(waiter)
        waiter.wake()

    async def read(self, limit: int = READ_SIZE, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - on the wheel
        """Pull up to `limit` bytes; b"" at the end. For streams without an owner; one reader at a time.

        errors.Timeout after `timeout` seconds (the stream stays usable), errors.ConnectionFailed when the
        connection is lost. A cancelled read loses no bytes.
        """
        if self.owner is not None or (self._waiter is not None and not self._waiter.future.done()):
            raise RuntimeError("read() on a stream that somebody else reads")
        due = None if timeout is None else self._clock.now() + timeout
        while True:
            if self.eof:
                return b""
            if self.closed:
                raise self.error or closed()
            if self._ready:
                data = self._pull(limit)
                if data is not None:
                    return data
            await self._wait_readable(due)

    def _wait_readable(self, due: float | None) -> asyncio.Future[None]:
        """Ends at readiness, or with errors.Timeout at `due` by the clock. One waiter serves all reads."""
        if not self._reader:
            self._arm_reader()
        if (waiter := self._waiter) is None:
            waiter = self._waiter = Waiter(self._loop, "recv()")
        else:
            waiter.future = self._loop.create_future()
        if due is not None:
            self._clock.schedule(waiter, due - self._clock.now())
        return waiter.future

    def _pull(self, limit: int) -> bytes | None:
        try:
            data = self._receive(limit)
        except BlockingIOError:
            self._ready = False
            return None
        except (OSError, errors.ConnectionFailed) as error:
            lost = failure("recv()", error)
            self._end(lost, soon=True)
            raise lost from error
        self._ready = len(data) == limit
        if not data:
            self.eof = True
            self._drop_reader()
        return data

    @property
    def quiet(self) -> bool:
        """The loop watches and has seen nothing since the last read: `probe` without a system call, a turn late."""
        return self._reader is not None and not self._ready and not self.closed

    def probe(self) -> str:
        """What an idle connection has for us: "idle", "data", "eof" or "error". Consumes nothing."""
        if self.closed:
            return "error"
        if self.eof:
            return "eof"
        try:
            data = self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return "idle"
        except OSError:
            return "error"
        return "data" if data else "eof"

    def write(self, data: bytes) -> None:
        """Append bytes and give the kernel what it takes now; the rest follows by itself."""
        if self._writer or self.closed:
            self.append(data)
            return
        try:
            done = self.chain.write_to(self.sock, data) if self._plain else self._transmit(data)
        except (OSError, errors.ConnectionFailed) as error:
            self._end(failure("send()", error), soon=True)
            return
        if not done and not self._dead:
            self._arm_writer()

    def append(self, data: bytes) -> None:
        """Append bytes; `flush` sends them. A closed stream drops them."""
        if not self.closed:
            self.chain.append(data)

    def flush(self) -> None:
        """Give the kernel what it takes now; the rest follows by itself."""
        self.write(b"")

    async def drained(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - on the wheel
        """Flush, and wait until every byte appended so far is in the kernel.

        errors.Timeout after `timeout` seconds (the stream stays usable), errors.ConnectionFailed when the
        bytes cannot get there.
        """
        self.flush()
        if not self.chain.length and self.chain.error is None:
            return
        waiter = Waiter(self._loop, "send()")
        self.chain.mark(waiter.wake)
        if timeout is not None:
            self._clock.schedule(waiter, timeout)
        try:
            await waiter.future
        finally:
            self._clock.cancel(waiter)

    def _transmit(self, data: bytes) -> bool:
        """Append and send; False when it must go on at the next writability."""
        return self.chain.write_to(self.sock, data)

    def _sent(self) -> int:
        """Bytes in the kernel, to see progress."""
        return self.chain.sent

    def _writable(self) -> None:
        before = self._sent()
        try:
            done = self._transmit(b"")
            if done and self._writer:
                self._drop_writer()
                self._drained_now()
        except (OSError, errors.ConnectionFailed) as error:
            self._end(failure("send()", error))
            return
        except Exception as error:  # noqa: BLE001 - of a mark's callback: reported, ends this connection only
            self._owner_failed(error)
            return
        if not done and self.due != NEVER and self._sent() != before:
            self._clock.schedule(self, self.send_timeout or CLOSE_TIMEOUT)

    def _drained_now(self) -> None:
        """The chain is empty: do what was put off until then."""
        if self.closed:
            self._end(None)
        elif self._shut:
            self.sock.shutdown(socket.SHUT_WR)

    def expired(self) -> None:
        """The peer has taken no byte for the whole send timeout: give it up."""
        if not self._dead:
            self._abort(timed_out("send()"))

    def shutdown_write(self) -> None:
        """Tell the peer that no more bytes come, after those of the chain. Reading goes on."""
        if self.closed or self._shut:
            return
        self._shut = True
        self.flush()
        if not self._writer and not self.closed:
            try:
                self._drained_now()
            except OSError as error:
                self._end(failure("shutdown()", error), soon=True)

    def close(self) -> None:
        """Send what is in the chain, then close; a peer that does not take it for the send timeout is aborted."""
        if self.closed:
            return
        self._drop_reader()
        self.flush()
        if self.closed:
            return
        self.closed = True
        if self._writer:
            self._clock.schedule(self, self.send_timeout or CLOSE_TIMEOUT)
        else:
            self._end(None, soon=True)

    def abort(self) -> None:
        """Close at once; the peer sees a reset, and unsent bytes are dropped."""
        if not self._dead:
            self._abort(None, soon=True)

    def detach(self) -> socket.socket:
        """Give the open socket away (upgrade to TLS, another process). The stream is closed, nobody is told."""
        self.closed = self._dead = self._told = True
        self._let_go()
        self.chain.fail(closed())
        return self.sock

    def _abort(self, error: errors.ConnectionFailed | None, *, soon: bool = False) -> None:
        reset_on_close(self.sock)
        self._end(error, soon=soon)

    def _owner_failed(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"owner of {self!r} failed", "exception": error})
        if not self._dead:
            self._abort(internal(error))

    def _end(self, error: errors.ConnectionFailed | None, *, soon: bool = False) -> None:
        """Close the descriptor; tell the owner now, or from the loop when the owner is the caller."""
        if self._dead:
            return
        self.closed = self._dead = True
        self.error = error
        self._let_go()
        self.sock.close()
        if soon:
            self._loop.call_soon(self._report)
        else:
            self._report()

    def _let_go(self) -> None:
        self._drop_reader()
        self._drop_writer()
        self._clock.cancel(self)
        if self._waiter is not None:
            self._clock.cancel(self._waiter)
        stats.closed += 1

    def _report(self) -> None:
        try:
            self.chain.fail(self.error or closed())
        except Exception as error:  # noqa: BLE001 - of a mark's callback: reported, the owner is told all the same
            self._owner_failed(error)
        if self._waiter is not None:
            self._waiter.wake(self.error or closed())
        if (owner := self.owner) is None or self._told:
            return
        self._told = True
        try:
            owner.connection_lost(self.error)
        except Exception as error:  # noqa: BLE001 - reported; the connection is closed already
            self._owner_failed(error)

    def _arm_reader(self) -> None:
        self._reader = watch(self._loop, self.fd, self._readable, self)

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader = None
            self._loop.remove_reader(self.fd)

    def watch_again(self, gone: Watch) -> None:  # noqa: D102 - see core.watch
        if self._reader is gone:
            self._drop_reader()
            self._arm_reader()

    def _arm_writer(self) -> None:
        if not self._writer:
            self._writer = True
            self._loop.add_writer(self.fd, self._writable)
            if self.send_timeout:
                self._clock.schedule(self, self.send_timeout)

    def _drop_writer(self) -> None:
        if self._writer:
            self._writer = False
            self._loop.remove_writer(self.fd)
            self._clock.suspend(self)

    def __repr__(self) -> str:
        kind, state = type(self).__name__, "closed" if self.closed else "open"
        return f"<{kind} fd={self.fd} peer={self.peer!r} {state} unsent={self.chain.length}>"
