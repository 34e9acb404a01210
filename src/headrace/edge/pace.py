"""limit_rate: an answer that is given to its client no faster than so many bytes a second.

A paced exchange stands before the one of the connection: what it is given waits in a queue, and a task hands on what
the rate allows. Everything else of an exchange is the connection's own.
https://nginx.org/en/docs/http/ngx_http_core_module.html#limit_rate
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.core.http1.exchange import Exchange
    from headrace.edge.request import Request

PIECE: Final = 1 << 16
"""Bytes that are handed on at a time, at most."""
_SET: Final = frozenset({"_inner", "_rate", "_after", "_queue", "_task", "_ended", "_sent", "_begin", "_then"})


_SIZE: Final = re.compile(rb"([0-9]+)([kKmM]?)")
_UNITS: Final = {b"": 1, b"k": 1 << 10, b"m": 1 << 20}


def bytes_of(text: bytes) -> int | None:
    """The bytes of a size such as 4k; None when it is none."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


class Paced:
    """rate: bytes a second. after: bytes that go at once, before the rate holds."""

    def __init__(self, inner: Exchange, rate: int, after: int) -> None:
        self._inner = inner
        self._rate = rate
        self._after = after
        self._queue: deque[bytes | tuple[int, int, int]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ended: tuple[tuple[bytes, bytes], ...] | None = None
        self._sent = 0
        self._begin = inner.conn.clock.now()
        self._then: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _SET:
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    @property
    def idle(self) -> bool:
        """Nothing waits for its time."""
        return self._task is None

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when nothing waits any more."""
        self._then.append(callback)

    def respond(self, head: bytes, body: bytes = b"") -> None:
        """A complete answer, framed already: the head now, the body as the rate allows."""
        inner = self._inner
        keep = inner.keep_alive
        inner.start_response(head, framing="close")  # as it is: the head tells how it ends
        inner.keep_alive = keep
        self.send(body)
        self.finish()

    def change(self, rate: int | None, after: int) -> None:
        """From here on another rate; None: as before."""
        self._rate = self._rate if rate is None else rate
        self._after = after

    async def gone(self) -> None:
        """Return when nothing waits for its time any more."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    def send(self, data: bytes) -> None:
        """Body bytes."""
        for at in range(0, len(data), PIECE):
            self._queue.append(data[at : at + PIECE])
        self._go_on()

    def send_file(self, fd: int, offset: int, length: int) -> None:
        """A piece of an open file; the descriptor is duplicated."""
        if length > 0:
            self._queue.append((os.dup(fd), offset, length))
            self._go_on()

    def finish(self, trailers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """The answer is complete when what waits has gone."""
        self._ended = tuple(trailers)
        self._go_on()

    def close(self) -> None:
        """Cut the answer off."""
        self._drop()
        self._inner.close()

    async def drain(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the interface of Exchange
        """Return when every byte so far is in the kernel."""
        await self.gone()
        await self._inner.drain(timeout)

    def _go_on(self) -> None:
        if self._task is None:
            wait = self._hand_on()
            if wait is not None:
                self._task = asyncio.get_running_loop().create_task(self._run(wait))

    async def _run(self, wait: float) -> None:
        clock = self._inner.conn.clock
        following: float | None = wait
        try:
            while following is not None:
                await clock.sleep(following)
                following = self._hand_on()
        except (ConnectionFailed, OSError):
            self._drop()
            self._inner.close()
        finally:
            self._task = None
            callbacks, self._then = self._then, []
            for callback in callbacks:
                callback()

    def _hand_on(self) -> float | None:
        """Give the connection what the rate allows now; seconds to wait for more, None when nothing is left."""
        inner = self._inner
        if inner.aborted or inner.finished or inner.conn.stream.closed:
            self._drop()
            if not inner.finished:
                inner.close()
            return None
        elapsed = inner.conn.clock.now() - self._begin
        rate = self._rate
        allowed = int(rate * (elapsed + 1)) + self._after - self._sent if rate else 1 << 62
        while self._queue:
            if allowed <= 0:
                return -allowed / rate + min(0.5, max(PIECE / rate, 0.01))
            allowed -= self._hand_piece(allowed)
        if self._ended is not None:
            inner.finish(self._ended)
        return None

    def _hand_piece(self, most: int) -> int:
        piece = self._queue.popleft()
        if isinstance(piece, bytes):
            part, rest = piece[:most], piece[most:]
            if rest:
                self._queue.appendleft(rest)
            self._inner.send(part)
            size = len(part)
        else:
            fd, offset, length = piece
            size = min(length, most)
            self._inner.send_file(fd, offset, size)
            if size < length:
                self._queue.appendleft((fd, offset + size, length - size))
            else:
                self._inner.conn.stream.chain.mark(lambda _error: os.close(fd))
        self._sent += size
        return size

    def _drop(self) -> None:
        for piece in self._queue:
            if not isinstance(piece, bytes):
                os.close(piece[0])
        self._queue.clear()


def pace(request: Request, rate: int | None, *, after: int = 0) -> None:
    """Give the rest of a request's answer a rate; 0 or None: no limit. Subrequests have the rate of their parent."""
    exchange: Any = request.exchange
    if isinstance(exchange, Paced):
        exchange.change(None, after)  # `set $limit_rate` goes before the directive
    elif rate and request.parent is None:
        paced: Any = Paced(exchange, rate, after)
        request.exchange = paced
