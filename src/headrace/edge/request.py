"""One request on its way through the phases, and its answer.

Two states matter for the answer: `header_sent` (the header is decided; filters have run) and whether bytes have
gone to the exchange. Between the two, small output waits (postpone_output), so that an answer which is complete
by then leaves in one write. Attributes have defaults on the class: a request that is answered at once sets few.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.edge import phases
from headrace.edge.body import discard_body, read_body
from headrace.edge.filters import filter_body
from headrace.edge.head import again, all_chunks, assemble, fitted
from headrace.edge.headers import HeadersIn, HeadersOut
from headrace.edge.log import INFO
from headrace.edge.logphase import end
from headrace.edge.special import complete
from headrace.errors import Timeout

if TYPE_CHECKING:
    from headrace.core.http1.exchange import Exchange, Framing
    from headrace.edge.families.slice import Slices
    from headrace.edge.filters import BodyFilter
    from headrace.edge.location import Location
    from headrace.edge.postpone import Postponed
    from headrace.edge.ranges import Parts
    from headrace.edge.server import Server
    from headrace.edge.ssi.page import Page

live: Final[dict[int, Request]] = {}
"""Requests by the integer handle that stands for them where no Python object may go (Lua)."""

_ids = itertools.count(1)


class Request:
    """What handlers, variables, filters and logs see.

    uri: normalised path (decoded, dots resolved), args: the query string as sent; both bytes.
    status: of the answer, 0 until something sets it. content_type: of the answer; None means by the URI's
    extension (types, default_type), b"" means none. content_length: of the answer's body in bytes, None when it is
    not known beforehand. body: the request body once read_body() has run (None when it went to body_file).
    """

    phase: str = phases.POST_READ
    status: int = 0
    content_type: bytes | None = None
    content_length: int | None = None
    last_modified: float | None = None
    allow_ranges: tuple[int, list[tuple[int, int]] | None] | None = None
    range_refused: bool = False
    parts: Parts | None = None
    whole_body: bool = False
    vary: bool = False
    header_sent: bool = False
    finished: bool = False
    internal: bool = False
    header_only: bool = False
    redirects: int = 0
    err_status: int = 0
    error_page: bool = False
    location_out: bytes | None = None
    uri_changed: bool = False
    rewrites: int = 0
    captures: Sequence[bytes | None] = ()
    body: bytes | None = None
    body_read: bool = False
    body_file: str | None = None
    head_size: int = 0
    kept_headers: HeadersOut | None = None
    """headers_out if anybody asked for them."""
    body_filters: tuple[BodyFilter, ...] = ()
    flushing: bool = False
    gzip: Any = None
    logged: bool = False
    abandoned: bool = False
    chunked: bool = False
    started: bool = False
    no_server = unconditional = uri_behind_alias = False
    """The answer has no Server field; what the client says in If-Match and its like does not matter."""
    lua: Any = None
    parent: Request | None = None
    """The request that this one is a subrequest of."""
    keep_buffered: bool = False
    uri_replaced: bool = False
    """The URI was rewritten within its location, and may not begin with the location's name any more."""
    upstream: Any = None
    """What its visits to upstreams leave for variables and logs (edge.upstream.state.State)."""
    reason: bytes = b""
    """The reason phrase of the status line, when it is not the usual one."""
    target: tuple[bytes, bytes | None] | None = None
    client: tuple[bytes, bytes | None] | None = None
    """Address and port of the client that realip found; None: the connection's peer."""
    postponed: Postponed | None = None
    """What waits for subrequests whose answers are parts of this one (edge.postpone)."""
    slices: Slices | None = None
    slice_from: int = 0
    """The pieces that this answer is fetched in (families.slice), and the first byte that the client wants."""
    charset: bytes = b""
    """The character set that the answer names, in lower case, where the configuration sets it."""
    page: Page | None = None
    """The page with commands that this answer is (edge.ssi)."""
    trailers: Callable[[], list[tuple[bytes, bytes]]] | None = None
    """Makes the fields that follow a chunked body (RFC 9112 7.1.2)."""
    sent_trailers: Sequence[tuple[bytes, bytes]] = ()
    ending: bool = False
    """The last part of the body waits for subrequests."""
    _id: int = 0
    _head: bytes = b""
    _headers_in: HeadersIn | None = None
    _vars: dict[bytes, bytes | None] | None = None
    _cleanups: list[Callable[[], None]] | None = None
    _pending: list[bytes] | None = None
    _pending_size: int = 0

    def __init__(self, exchange: Exchange, server: Server, uri: bytes, args: bytes) -> None:
        self.exchange: Exchange = exchange
        self.server: Server = server
        self.location: Location = server.location
        self.method: bytes = exchange.head.method
        self.uri: bytes = uri
        self.args: bytes = args

    # what others hold of a request

    @property
    def id(self) -> int:
        """An integer that stands for this request in `live` until it ends."""
        if not self._id:
            self._id = next(_ids)
            live[self._id] = self
        return self._id

    @property
    def main(self) -> Request:
        """The request of the client that this one belongs to; itself when it is that."""
        request: Request = self
        while request.parent is not None:
            request = request.parent
        return request

    def on_cleanup(self, callback: Callable[[], None]) -> None:
        """Call back when the request has ended and is logged (last registered first)."""
        if self._cleanups is None:
            self._cleanups = []
        self._cleanups.append(callback)

    def elapsed(self) -> float:
        """Seconds since the request was complete."""
        return self.exchange.conn.clock.now() - self.exchange.start

    def received(self) -> int:
        """Bytes of the request so far: head and body."""
        exchange = self.exchange
        head = exchange.head
        return (len(head.raw) if head.version < 20 else head.length) + (
            0 if exchange.body is None else exchange.body.received
        )

    # headers

    @property
    def headers_out(self) -> HeadersOut:
        """The header fields of the answer without Content-Type, Content-Length, Server, Date, Connection."""
        if self.kept_headers is None:
            self.kept_headers = HeadersOut()
        return self.kept_headers

    def header_in(self, name: bytes) -> bytes | None:
        """A header field of the request; the name in lower case."""
        if self._headers_in is not None:
            return self._headers_in.get(name)
        return self.exchange.head.fields.get(name)

    def may_have(self, start: bytes) -> bool:
        """False when no header field of the request begins with this (lower case): cheaper than asking for each."""
        return self._headers_in is not None or b"\n" + start in self.exchange.head.fields.low

    def headers_in(self) -> list[tuple[bytes, bytes]]:
        """All header fields of the request, in order, names as sent."""
        if self._headers_in is not None:
            return self._headers_in.fields
        return self.exchange.head.headers()

    def change_headers_in(self) -> HeadersIn:
        """The header fields of the request, to be changed."""
        if self._headers_in is None:
            self._headers_in = HeadersIn(self.exchange)
        return self._headers_in

    # variables

    def var(self, name: bytes) -> bytes | None:
        """The value of a variable by its name without `$`; None when unknown or not set."""
        getter = self.server.variables.find(name)
        return getter(self) if getter else None

    def set_var(self, name: bytes, value: bytes) -> None:
        """Set a variable. Raises KeyError when no directive declares it, ValueError when it cannot be changed."""
        self.server.variables.setter(name)(self, value)

    @property
    def headers_in_changed(self) -> bool:
        """A handler has changed the header fields of the request."""
        return self._headers_in is not None

    def get_slot(self, name: bytes) -> bytes | None:
        """The stored value of a variable made by `set`, a named capture or a map."""
        return self._vars.get(name) if self._vars is not None else None

    def variables(self) -> dict[bytes, bytes | None]:
        """The stored values of all variables by name, to be read or shared."""
        if self._vars is None:
            self._vars = {}
        return self._vars

    def set_slot(self, name: bytes, value: bytes | None) -> None:
        """Store the value of a variable made by `set`, a named capture or a map."""
        if self._vars is None:
            self._vars = {}
        self._vars[name] = value

    # the answer

    def send_header(self) -> None:
        """Decide the header: header filters run, later changes of headers have no effect. Bytes may still wait."""
        if self.header_sent:
            return
        self.header_sent = True
        self._head = assemble(self)

    def output(self, data: bytes) -> None:
        """Send a part of the body (and the header first). Small parts wait until flush(), finish(), or enough."""
        if self.finished:
            return
        if not self.header_sent:
            self.header_sent = True
            self._head = assemble(self)
        if self.body_filters:
            data = filter_body(self, data, last=False)
        if not data or self.header_only:
            return
        if self._pending is None:
            self._pending = [data]
        else:
            self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size >= self.location.postpone_output and not self.keep_buffered:
            self.push()

    def put(self, data: bytes) -> None:
        """Take a part of the body that has been through the filters."""
        if self._pending is None:
            self._pending = [data]
        else:
            self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size >= self.location.postpone_output and not self.keep_buffered:
            self.push()

    def output_file(self, fd: int, offset: int, length: int) -> None:
        """Send a part of an open file; fd is dup'ed by the chain or must stay open until the request ends."""
        if not self.header_sent:
            self.header_sent = True
            self._head = assemble(self)
        if self.header_only or not length:
            return
        self.push()
        self.exchange.send_file(fd, offset, length)

    def respond(self, status: int, body: bytes, content_type: bytes | None = None) -> None:
        """Answer completely with a body that is at hand, and end the request."""
        self.status = status
        self.content_length = len(body)
        if content_type is not None:
            self.content_type = content_type
        self.end_with(body)

    def end_with(self, data: bytes) -> None:
        """Send the last part of the body and end the request: output() and finish() in one."""
        if self.header_sent or self.finished:
            if data:
                self.keep_buffered = True
                self.output(data)
            self.finish()
            return
        self.header_sent = True
        head = self._head = assemble(self)
        if self.body_filters:
            if data:
                self.keep_buffered = True
                self.output(data)
            self.finish()
            return
        if self.trailers is not None and self.may_trail:
            self._finish_trailed(data)
            return
        self.finished = self.started = True
        self.head_size = len(head)
        if self.header_only:
            data = b""
        elif self.chunked:
            data = all_chunks(data)
        elif self.content_length != len(data):
            if self.content_length is None:  # not chunked: its end is the connection's, but it is all here
                self.content_length = len(data)
                head = self._head = again(self)
                self.head_size = len(head)
            else:
                data = fitted(self, data)
        self.exchange.respond(head, data)
        if self.location.log_handlers or self._cleanups:
            end(self)
        elif self._id:
            del live[self._id]

    @property
    def may_trail(self) -> bool:
        """The framing of the answer has a place for trailers: chunks, or HTTP/2."""
        return self.chunked or self.exchange.head.version == 20

    def _trailers(self) -> list[tuple[bytes, bytes]]:
        assert self.trailers is not None
        return self.trailers()

    def _finish_trailed(self, data: bytes) -> None:
        """End an answer that has trailers, with its last part."""
        if data and not self.header_only:
            self.put(data)
        self.push()
        self.close_answer()

    def _filter_end(self) -> None:
        rest = filter_body(self, b"", last=True)
        if rest and not self.header_only:
            self._pending = [*(self._pending or ()), rest]

    def push(self) -> None:
        """Hand header and pending body to the exchange: from here on they are on their way."""
        if not self.header_sent:
            self.header_sent = True
            self._head = assemble(self)
        exchange = self.exchange
        if not self.started:
            self.started = True
            self.head_size = len(self._head)
            exchange.start_response(self._head, framing=self.framing)
        if self._pending:
            pending, self._pending, self._pending_size = self._pending, None, 0
            exchange.send(pending[0] if len(pending) == 1 else b"".join(pending))

    @property
    def framing(self) -> Framing:
        """How the end of the body is marked (RFC 9112 6.3), in the words of core.http1.server."""
        if self.header_only:
            return "none"
        if self.chunked:
            return "chunked"
        return "length" if self.content_length is not None else "close"

    async def flush(self) -> None:
        """Send everything so far; returns when it is in the kernel. Raises Timeout, ConnectionFailed."""
        if self.body_filters and not self.finished:
            self.flushing = True
            held = filter_body(self, b"", last=False)
            self.flushing = False
            if held and not self.header_only:
                self._pending = [*(self._pending or ()), held]
        self.push()
        try:
            await self.exchange.drain(self.location.send_timeout)
        except Timeout:
            self.log_error(INFO, b"client timed out (110: Connection timed out) while sending to client")
            self.exchange.conn.stream.abort()
            raise

    def finish(self) -> None:
        """End the answer and the request; does nothing the second time."""
        if self.finished:
            return
        if not self.header_sent:
            self.end_with(b"")
            return
        if self.body_filters:
            if self.ending:
                return
            self._filter_end()
            if self.ending:
                return
        self.close_answer()

    def close_answer(self) -> None:
        """End the answer when its last part has been through the filters."""
        self.finished = True
        if self.started:
            self.push()
            self.exchange.finish(() if self.trailers is None or not self.may_trail else self._trailers())
        elif self.trailers is not None and self.may_trail:
            self.finished = False
            self._finish_trailed(b"")
            return
        else:
            pending, self._pending = self._pending, None
            data = b"" if not pending else pending[0] if len(pending) == 1 else b"".join(pending)
            data = all_chunks(data) if self.chunked else fitted(self, data)
            self.started = True
            self.head_size = len(self._head)
            self.exchange.respond(self._head, data)
        if self.location.log_handlers or self._cleanups:
            end(self)
        elif self._id:
            del live[self._id]

    def abandon(self) -> None:
        """Close the connection without (the rest of) an answer, and end the request."""
        if not self.finished:
            self.finished = self.abandoned = True
            self.exchange.close()
            self.end()

    def end(self) -> None:
        """Run the log phase and the cleanups when the answer is in the kernel."""
        end(self)

    def run_cleanups(self) -> None:
        """Forget the handle and call the cleanups; called once, after the log phase."""
        if self._id:
            live.pop(self._id, None)
        cleanups = self._cleanups
        if cleanups:
            self._cleanups = None
            for callback in reversed(cleanups):
                try:
                    callback()
                except Exception as error:  # noqa: BLE001 - the others must run too
                    self.log_fault(error)

    def complete(self, code: int | None) -> phases.Steps | None:
        """Act on the code a phase ended with; returns the steps to run when the request begins again."""
        if code == phases.OK or code == phases.DONE:  # noqa: PLR1714 - the fastest form of a hot test
            if not self.finished:
                self.finish()
            following = None
        else:
            following = complete(self, code)
        if following is None and self.postponed is not None and not self.finished:
            return self.postponed.steps
        return following

    # going elsewhere

    def internal_redirect(self, uri: bytes, args: bytes | None = None) -> int:
        """Begin again with another URI (decoded and normalised by the caller), or with `@name`.

        args None keeps the query string. Returns the code that the handler has to return.
        """
        self.target = (uri, args)
        return phases.REDIRECT

    def change_uri(self, uri: bytes, *, jump: bool = False) -> None:
        """Rewrite the URI; jump: the location is searched anew after the rewrite phase."""
        self.uri = uri
        if jump:
            self.uri_changed = True
        else:
            self.uri_replaced = True

    # request body (edge.body)

    def read_body(self) -> Awaitable[None] | None:
        """Read the whole request body into `body`, or into `body_file` past client_body_buffer_size.

        None: it is there already. Raises HttpError 413, 400, 408 in the call or in the awaitable.
        """
        return read_body(self)

    def discard_body(self) -> None:
        """Let the connection read and forget the request body."""
        discard_body(self)

    # error log

    def log_error(self, level: int, message: bytes) -> None:
        """A line in the error log, with the client, server and request behind it. level as in edge.log."""
        self.location.error_log.request_line(self, level, message)

    def log_fault(self, error: BaseException) -> None:
        """A fault of ours, with its traceback, at level error."""
        self.location.error_log.fault(self, error)
