"""Exchange: one request and its answer.

Rules: the answer goes into the chain of the connection in its turn; a complete answer is one write;
nothing is written after the end. What framing an answer has is the handler's decision (its head says
so); the exchange only carries it out, and drops body bytes where RFC 9110 allows none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from headrace.core.http1.frame import LAST_CHUNK, chunk_size, last_chunk
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.inbound import RequestBody
    from headrace.core.http1.server import HttpConnection
    from headrace.core.http1.settings import ServerSettings
    from headrace.core.stream import Stream

    Framing = Literal["length", "chunked", "close", "none"]

_BODYLESS = frozenset({b"204", b"304"})
_COPIED = 16_384  # below it one copied segment is cheaper than a gathered write
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*([0-9]+)")


class Exchange:
    """One request and its answer.

    head: the request head; partial (method b"") when `Handler.refuse` answers a head that is broken.
    settings: those of the connection; may be replaced before the body is read (virtual servers).
    start: clock seconds at which the request was complete.
    keep_alive: whether the connection stays open after the answer; read it for the Connection field
    right before the head is built, set it False to close.
    bytes_sent: bytes of the answer given to the chain. headers_sent: the answer has begun.
    finished: the answer is complete. aborted: the client is gone; `on_abort` is called when that happens
    before the answer is finished. A client that only shut down its writing side counts as gone when
    `abort_on_eof` is set (as nginx: such a client is answered, unless its handler checks for it).
    body: the request body, None without one.
    linger: read on a while after the close, the client may still send. refused: `Handler.refuse` was
    asked to answer it. upgraded: the stream belongs to somebody else.
    """

    __slots__ = (
        "_chunked",
        "_left",
        "_mute",
        "abort_on_eof",
        "aborted",
        "body",
        "bytes_sent",
        "conn",
        "finished",
        "head",
        "headers_sent",
        "keep_alive",
        "linger",
        "on_abort",
        "refused",
        "settings",
        "start",
        "upgraded",
    )

    def __init__(self, conn: HttpConnection, head: RequestHead, start: float, keep_alive: bool) -> None:
        self.conn = conn
        self.head = head
        self.settings: ServerSettings = conn.settings
        self.start = start
        self.keep_alive = keep_alive
        self.body: RequestBody | None = None
        self.bytes_sent = 0
        self.headers_sent = False
        self.finished = False
        self.aborted = False
        self.linger = False
        self.upgraded = False
        self.refused = False
        self.abort_on_eof = False
        self.on_abort: Callable[[], None] | None = None
        self._mute = False  # body bytes are dropped
        self._chunked = False
        self._left: int | None = None  # declared body bytes still to be sent

    def adopt(self, settings: ServerSettings) -> None:
        """From here on the connection follows these settings (a virtual server, a location)."""
        self.conn.use(settings, self)

    def body_now(self) -> bytes | None:
        """The whole body if it has arrived (b"" when there is none), else None. Raises HttpError 400, 413."""
        return b"" if self.body is None else self.body.now(self.settings.max_body)

    async def read_body(self, limit: int | None = None) -> bytes:
        """The whole body, at most `limit` bytes (default: settings.max_body; 0: no limit).

        Asks a client that waits for a 100 answer to go on. Raises HttpError: 413 too large, 400 broken or
        cut short, 408 too slow; ConnectionFailed when the connection is lost.
        """
        if self.body is None:
            return b""
        return await self.body.read(self.settings.max_body if limit is None else limit)

    async def next_chunk(self) -> bytes:
        """Some more bytes of the body, b"" at its end. Raises as `read_body`."""
        return b"" if self.body is None else await self.body.next(self.settings.max_body)

    def check_body(self) -> None:
        """Raise HttpError(413) now when the declared length is above settings.max_body."""
        if self.body is not None:
            self.body.check(self.settings.max_body)

    def respond(self, head: bytes, body: bytes = b"") -> None:
        """Answer completely: status line, fields and body in one write. The body is in the framing of the head."""
        if self.headers_sent:
            raise RuntimeError("the answer has begun already")
        conn = self.conn
        self.headers_sent = self.finished = True
        if body:
            if self.head.method == b"HEAD" or head[9:12] in _BODYLESS:
                body = b""
            elif self.head.version == 9:
                head = b""
        elif self.head.version == 9:
            head = b""
        stream = conn.stream
        self.bytes_sent += len(head) + len(body)
        if len(body) < _COPIED:
            stream.write(head + body)
        else:
            stream.append(head)
            stream.append(body)
            stream.flush()
        if not conn.serving:
            conn.finish(self)

    def interim(self, head: bytes) -> None:
        """Send an interim answer (103, ...) before the final one; HTTP/1.0 clients get none."""
        if not self.headers_sent and self.head.version == 11:
            self.bytes_sent += len(head)
            self.conn.stream.write(head)

    def start_response(self, head: bytes, *, framing: Framing) -> None:
        """Begin an answer whose body follows by `send`. The head waits for the first bytes, `drain` or `finish`.

        framing: how the head says the body ends. "length": by its Content-Length (an answer that ends short
        of it closes the connection); "chunked": `send` makes chunks (HTTP/1.1 clients only: head.version 11);
        "close": with the connection; "none": no body follows.
        """
        if self.headers_sent:
            raise RuntimeError("the answer has begun already")
        version = self.head.version
        if framing == "chunked" and version != 11:
            raise ValueError("chunked framing for a client that does not know it")
        self.headers_sent = True
        if self.head.method == b"HEAD" or framing == "none" or head[9:12] in _BODYLESS:
            self._mute = True
        elif framing == "chunked":
            self._chunked = True
        elif framing == "close":
            self.keep_alive = False
        else:
            length = _LENGTH.search(head.lower())
            if length is None:
                raise ValueError("a head without Content-Length for a body framed by it")
            self._left = int(length[1])
        if version == 9:
            return
        self.bytes_sent += len(head)
        self.conn.stream.append(head)

    def send(self, data: bytes) -> None:
        """Send body bytes. What the kernel does not take waits in the chain: a large answer awaits `drain`."""
        if self.finished or not self._admit(len(data)):
            return
        stream = self.conn.stream
        if self._chunked:
            size = chunk_size(len(data))
            self.bytes_sent += len(size) + 2
            if len(data) < _COPIED:
                stream.append(b"%b%b\r\n" % (size, data))
            else:
                stream.append(size)
                stream.append(data)
                stream.append(b"\r\n")
        else:
            stream.append(data)
        self.bytes_sent += len(data)
        stream.flush()

    def send_file(self, fd: int, offset: int, length: int) -> None:
        """Send a piece of an open file as body bytes; keep `fd` open until `drain` returned or a mark after it."""
        if self.finished or not self._admit(length):
            return
        stream = self.conn.stream
        self.bytes_sent += length
        if self._chunked:
            size = chunk_size(length)
            self.bytes_sent += len(size) + 2
            stream.append(size)
        stream.chain.append_file(fd, offset, length)
        if self._chunked:
            stream.append(b"\r\n")
        stream.flush()

    def _admit(self, length: int) -> bool:
        """Whether body bytes go out; more than was declared is a fault of the handler."""
        if not self.headers_sent:
            raise RuntimeError("body bytes before the head")
        if self._mute or not length:
            return False
        if self._left is not None:
            if length > self._left:
                self.close()
                raise ValueError("more body bytes than the head declares")
            self._left -= length
        return True

    def flush(self) -> None:
        """Give the kernel what waits in the chain, without waiting for it."""
        self.conn.stream.flush()

    async def drain(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - on the wheel of the clock
        """Return when every byte so far is in the kernel. Raises Timeout, ConnectionFailed."""
        await self.conn.stream.drained(timeout)

    def finish(self, trailers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """The answer is complete; the connection goes on to the next request. Does nothing the second time."""
        if self.finished:
            return
        if not self.headers_sent and not self.upgraded:
            raise RuntimeError("an answer without a head")
        self.finished = True
        if self.upgraded:
            self.conn.finish(self)
            return
        stream = self.conn.stream
        if self._chunked:
            end = last_chunk(trailers) if trailers else LAST_CHUNK
            self.bytes_sent += len(end)
            stream.append(end)
        elif self._left:
            self.keep_alive = False
        stream.flush()
        if not self.conn.serving:
            self.conn.finish(self)

    def close(self) -> None:
        """End the exchange and close the connection without (the rest of) an answer."""
        if not self.finished:
            self.finished = True
            self.keep_alive = False
            self.linger = False
            if (self._chunked or self._left) and not self.upgraded:
                self.conn.stream.abort()  # a clean end could pass for a whole answer
            if not self.conn.serving:
                self.conn.finish(self)

    def upgrade(self) -> Stream:
        """Hand the raw stream over to the caller, who closes it; call `finish` or `close` when that is done.

        What the client has sent after the head is in `take_buffered`. The stream has no owner then. Only
        for coroutines of a handler: inside of `handle` the input is not sorted yet.
        """
        if self.conn.serving:
            raise RuntimeError("upgrade() inside of handle()")
        self.upgraded = True
        return self.conn.detach(self)

    def take_buffered(self) -> bytes:
        """Bytes of the client that were read from the socket and belong to no request yet."""
        return self.conn.take_buffered()

    def abort(self, error: ConnectionFailed | None = None) -> None:
        """The client is gone. Called by the connection."""
        if self.finished or self.aborted:
            return
        self.aborted = True
        self.keep_alive = False
        if self.body is not None:
            self.body.fail(error or ConnectionFailed("the client closed the connection"))
        callback, self.on_abort = self.on_abort, None
        if callback is not None:
            callback()
