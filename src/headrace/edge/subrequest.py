"""Subrequests: a request within a request, whose answer goes to its parent and not to the client.

A subrequest runs through the phases of its own location, from the server's own phases on, with the connection, the
request line and the header fields of its parent. Its answer is collected: the parent (or the script that asked) gets
the status, the header fields and the body. Filters that belong to the client's answer (compression, added headers,
ranges, conditions) do not run; those of scripts do. It is not logged. Its end is told in every case.

https://nginx.org/en/docs/dev/development_guide.html#http_subrequests
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from headrace.edge import log, phases
from headrace.edge.filters import filter_body
from headrace.edge.request import Request
from headrace.edge.special import find_location
from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headrace.core.http1.events import RequestHead
    from headrace.core.http1.exchange import Exchange
    from headrace.core.http1.inbound import RequestBody
    from headrace.core.http1.server import HttpConnection
    from headrace.core.http1.settings import ServerSettings
    from headrace.core.stream import Stream
    from headrace.edge.location import Location

MAX_DEPTH: Final = 50
"""Subrequests within subrequests."""
_BODYLESS: Final = frozenset({204, 304})
_CUT: Final = frozenset({408, 444, 499})
_READ: Final = 1 << 20


class InnerExchange:
    """What a subrequest has for the exchange with a client: the parent's head and connection, and no bytes to it."""

    keep_alive = True
    body: RequestBody | None = None
    bytes_sent = 0
    headers_sent = False
    finished = False
    linger = False
    upgraded = False
    refused = False
    abort_on_eof = False
    on_abort: Callable[[], None] | None = None

    def __init__(self, parent: Exchange) -> None:
        self.conn: HttpConnection = parent.conn
        self.head: RequestHead = parent.head
        self.settings: ServerSettings = parent.settings
        self.start = parent.conn.clock.now()
        self._parent = parent

    @property
    def aborted(self) -> bool:
        """The client of the parent is gone."""
        return self._parent.aborted

    def adopt(self, settings: ServerSettings) -> None:
        """The connection keeps the settings of the parent's location."""
        self.settings = settings

    def body_now(self) -> bytes:
        """A subrequest is given its body; there is nothing to read."""
        return b""

    async def next_chunk(self) -> bytes:
        """See body_now."""
        return b""

    def flush(self) -> None:
        """Nothing waits for the kernel."""

    async def drain(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the interface of Exchange
        """Nothing waits for the kernel."""

    def finish(self) -> None:
        """The answer is complete."""
        self.finished = True

    def close(self) -> None:
        """The answer is cut off."""
        self.finished = True

    def upgrade(self) -> Stream:
        """A subrequest has no stream of its own."""
        raise ConnectionFailed("a subrequest cannot take over the connection")

    def take_buffered(self) -> bytes:
        """See upgrade."""
        return b""


class Subrequest(Request):
    """A request whose answer is collected in `collected`.

    parent: the request it belongs to. bare: an answer without a handler of its own (404, a redirect, ...) has no
    page: its status is all there is, and error_page does not apply, as for ngx.location.capture.
    truncated: the answer was cut off. done: called once, when it has ended.
    """

    depth: int = 0
    internal = True
    body_read = True
    truncated = False
    entry: Location | None = None
    """Where it begins, when its URI does not say it."""
    muted = False
    """What waits for it does not show its answer."""
    size = 0
    task: asyncio.Task[None] | None = None

    def __init__(
        self,
        parent: Request,
        uri: bytes,
        args: bytes,
        *,
        method: bytes = b"GET",
        bare: bool = False,
        done: Callable[[Subrequest], None] | None = None,
    ) -> None:
        exchange: Any = InnerExchange(parent.exchange)
        super().__init__(exchange, parent.server, uri, args)
        self.parent: Request | None = parent
        self.depth = parent.depth + 1 if isinstance(parent, Subrequest) else 1
        self.method = method
        self.bare = bare
        self.collected: list[bytes] = []
        self._done = done
        self.client = parent.client
        if parent.headers_in_changed:
            self.change_headers_in().fields = list(parent.headers_in())

    @property
    def handle(self) -> int:
        """Its integer in `live`, also after its end; 0 when it never had one."""
        return self._id

    def copy_vars(self, parent: Request) -> None:
        """Begin with the values that the parent's variables have now."""
        self._vars = dict(parent.variables())

    def share_vars(self, parent: Request) -> None:
        """Have the parent's variables for its own: what one sets, the other sees."""
        self._vars = parent.variables()
        self.captures = parent.captures

    @property
    def answer(self) -> bytes:
        """The body so far."""
        return b"".join(self.collected)

    def give_body(self, data: bytes | None, path: str | None = None) -> None:
        """Set the request body: bytes, or a file of the parent's, or none; Content-Length says so."""
        fields = self.change_headers_in()
        fields.set_all(b"Transfer-Encoding", ())
        size = os.stat(path).st_size if path is not None else len(data or b"")
        fields.set_all(b"Content-Length", (b"%d" % size,) if data is not None or path is not None else ())
        self.body, self.body_file = data, path

    def enter(self, location: Location) -> None:
        """Begin in a location, whatever the URI is."""
        self.entry = self.location = location

    def start(self) -> None:
        """Run in a turn of the loop of its own."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def run_now(self, steps: phases.Steps | None = None) -> bool:
        """Run as far as it gets; True when it has ended, and nobody is told. What is left runs in a task.

        steps: of its location, where that is known.
        """
        done, self._done = self._done, None
        rest = self._begin() if steps is None else phases.run(self, steps)
        if rest is None:
            if not self.finished:
                self.abandon()
            return True
        self._done = done
        self.task = asyncio.get_running_loop().create_task(self._run(rest))
        return False

    def _begin(self) -> Coroutine[Any, Any, None] | None:
        """Run the phases; what is left to be waited for."""
        steps: phases.Steps | None
        if self.depth > MAX_DEPTH:
            self.log_error(log.ERR, b'subrequests cycle while processing "%b"' % self.uri)
            steps = self.complete(500)
        else:
            steps = self.server.steps or find_location(self) if self.entry is None else self.entry.inner_steps
        return None if steps is None else phases.run(self, steps)

    async def _run(self, rest: Coroutine[Any, Any, None] | None = None) -> None:
        try:
            if rest is None:
                rest = self._begin()
            if rest is not None:
                await rest
        finally:
            if not self.finished:
                self.abandon()

    def cancel(self) -> None:
        """End it without an answer: its parent has ended."""
        self._done = None
        if self.task is not None:
            self.task.cancel()

    # the answer, as Request has it

    def send_header(self) -> None:
        """Decide the header: script filters run."""
        if not self.header_sent:
            self.header_sent = True
            self._decide()

    def _decide(self) -> None:
        location = self.location
        self.status = self.err_status or self.status or 200
        if self.content_type is None:
            self.content_type = location.known_types.get(self.uri) or location.content_type_of(self.uri)
        self.body_filters = location.body_filters
        filters = location.script_filters if self.bare else location.inner_filters
        if filters:
            for header_filter in filters:
                header_filter(self)
            if self.postponed is not None:
                self.postponed.take_rest()
        if self.status in _BODYLESS or self.method == b"HEAD":
            self.header_only = True

    def output(self, data: bytes) -> None:
        """Take a part of the body."""
        if self.finished:
            return
        self.send_header()
        if self.body_filters:
            data = filter_body(self, data, last=False)
        if data and not self.header_only:
            self.put(data)

    def put(self, data: bytes) -> None:
        """Take a part that has been through the filters."""
        self.collected.append(data)
        self.size += len(data)
        self.exchange.bytes_sent += len(data)

    def output_file(self, fd: int, offset: int, length: int) -> None:
        """Take a part of an open file."""
        self.send_header()
        if self.header_only:
            return
        while length > 0:
            data = os.pread(fd, min(length, _READ), offset)
            if not data:
                self.truncated = True
                return
            offset, length = offset + len(data), length - len(data)
            self.output(data)

    def end_with(self, data: bytes) -> None:
        """Take the last part of the body, and end."""
        if data:
            self.output(data)
        self.finish()

    def push(self) -> None:
        """The header is decided; bytes are taken as they come."""
        self.send_header()

    async def flush(self) -> None:
        """Nothing waits for the kernel."""
        self.send_header()

    def finish(self) -> None:
        """End the answer and the request; does nothing the second time."""
        if self.finished:
            return
        self.send_header()
        if self.body_filters:
            if self.ending:
                return
            rest = filter_body(self, b"", last=True)
            if rest and not self.header_only:
                self.put(rest)
            if self.ending:
                return
        self.close_answer()

    def close_answer(self) -> None:
        """The last part has been through the filters."""
        if self.content_length is not None and not self.header_only and self.size != self.content_length:
            self.truncated = self.size < self.content_length
        self._close()

    def abandon(self) -> None:
        """End without (the rest of) an answer."""
        if not self.finished:
            self.abandoned = True
            self.truncated = self.header_sent
            self.status = self.status if self.header_sent else self.err_status or self.status or 500
            self._close()

    def _close(self) -> None:
        self.finished = self.started = True
        self.exchange.finish()
        if self.location.log_subrequest:
            self.phase = phases.LOG
            for handler in self.location.log_handlers:
                try:
                    handler(self)
                except Exception as error:  # noqa: BLE001 - the other logs must run too
                    self.log_fault(error)
        self.run_cleanups()
        done, self._done = self._done, None
        if done is not None:
            done(self)

    def end(self) -> None:
        """Subrequests are not logged."""

    def complete(self, code: int | None) -> phases.Steps | None:
        """Act on the code a phase ended with; a bare one has no page for it."""
        if self.bare and code is not None and not self.header_sent and not self.finished:
            if code == phases.ERROR or code in _CUT:
                self.status = 500 if code == phases.ERROR else code
                self.abandon()
                return None
            if code >= 300 or code in (201, 204):
                self.err_status = self.status = code
                self.content_type, self.content_length, self.last_modified = b"", None, None
                self.finish()
                return None
        if code is None and self.bare:
            return self.complete(403 if self.uri.endswith(b"/") else 404)
        return super().complete(code)


async def run_to_end(
    parent: Request, uri: bytes, args: bytes, *, method: bytes = b"GET", header_only: bool = False, shared: bool = False
) -> Subrequest:
    """Run a subrequest and wait for its end; it ends with the one who waits.

    header_only: no body is wanted. shared: it has the parent's variables.
    """
    ended = asyncio.get_running_loop().create_future()

    def done(_made: Subrequest) -> None:
        if not ended.done():
            ended.set_result(None)

    made = Subrequest(parent, uri, args, method=method, done=done)
    made.header_only = header_only
    if shared:
        made.share_vars(parent)
    made.start()
    try:
        await ended
    finally:
        if not made.finished:
            made.cancel()
    return made
