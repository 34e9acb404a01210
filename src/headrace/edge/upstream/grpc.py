"""gRPC: an HTTP/2 client towards the upstream.

A visit has the connection to itself for one exchange; while it is idle in the pool of its group, so is what is known
of its tables and windows (Group.sessions). The body goes as fast as the windows of the upstream allow, and by default
while it arrives; what the upstream says opens them, so reader and pump share the session.
https://nginx.org/en/docs/http/ngx_http_grpc_module.html
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Final

from headrace.core.clock import Waiter
from headrace.core.http1.parse import ProtocolError, parse_response_head
from headrace.core.http2.client import ClientConnection, Headers
from headrace.core.http2.frames import Fault
from headrace.core.http2.hpack import encode_fields
from headrace.edge.upstream.ask import Ask, body_length, request_uri, safe_target, unparsed
from headrace.edge.upstream.reply import PREMATURE, BadReply, Reading
from headrace.edge.upstream.routing import PassService
from headrace.errors import ConnectionFailed, Error, HttpError

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead
    from headrace.core.http2.hpack import Field
    from headrace.core.stream import Stream
    from headrace.edge.request import Request
    from headrace.edge.upstream.ask import FieldPlan
    from headrace.edge.upstream.peers import Group
    from headrace.edge.upstream.service import Route
    from headrace.edge.upstream.settings import Settings
    from headrace.edge.upstream.visit import Visit

PIECE: Final = 65_536
MAX_INTERIM: Final = 100
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]")
_STATUS: Final = re.compile(rb"[1-9][0-9]{2}")
_OF_HTTP1: Final = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))


def answer_head(fields: list[Field], method: bytes) -> ResponseHead:
    """The head of an answer in the form that HTTP/1 has. Raises BadReply."""
    status = b""
    lines: list[bytes] = []
    for name, value in fields:
        if name[:1] == b":":
            if name != b":status" or status or lines:
                raise _invalid(name, value)
            if not _STATUS.fullmatch(value):
                raise BadReply(f'upstream sent invalid :status "{_shown(value)}"')
            status = value
        elif not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
            raise _invalid(name, value)
        elif name not in _OF_HTTP1:
            lines.append(b"%b: %b\r\n" % (name, value))
    if not status:
        raise BadReply("upstream sent no :status header")
    try:
        return parse_response_head(b"HTTP/1.1 %b\r\n%b\r\n" % (status, b"".join(lines)), method)
    except ProtocolError as error:
        raise BadReply("upstream sent invalid content length") from error


def trailer_fields(fields: list[Field]) -> list[Field]:
    """The trailers of an answer. Raises BadReply."""
    for name, value in fields:
        if not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
            raise _invalid(name, value)
    return [field for field in fields if field[0] not in _OF_HTTP1]


def _invalid(name: bytes, value: bytes) -> BadReply:
    return BadReply(f'upstream sent invalid header: "{_shown(name)}: {_shown(value)}"')


def _shown(text: bytes) -> str:
    return text[:200].decode("latin-1").encode("unicode_escape").decode("ascii")


class GrpcReader(Reading):
    """See reply.Reader. What has to go out in answer to what comes is written to the stream at once."""

    extra = b""

    def __init__(self, session: ClientConnection, stream: Stream, method: bytes) -> None:
        super().__init__()
        self.pump: GrpcPump | None = None
        self._session = session
        self._stream = stream
        self._method = method
        self._left: int | None = None
        self._interim = 0

    def feed(self, data: bytes) -> list[bytes]:
        """See Reader."""
        pieces: list[bytes] = []
        session = self._session
        try:
            events = session.receive(data)
        except Fault as fault:
            raise BadReply(fault.message) from fault
        replies = session.take_replies()
        if replies:
            self._stream.write(replies)
        for event in events:
            if isinstance(event, bytes):
                self._body(event)
                pieces.append(event)
            else:
                self._headers(event)
        if session.answered and not self.done:
            if self._left:
                raise BadReply("upstream prematurely closed stream", premature=True)
            self.done = True
            self.keep_alive = session.usable
        elif self.pump is not None:
            self.pump.opened()
        return pieces

    def _body(self, piece: bytes) -> None:
        if self.head is None:
            raise BadReply("upstream sent http2 data frame before the headers")
        if self._left is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise BadReply("upstream sent response body larger than indicated content length")

    def _headers(self, event: Headers) -> None:
        if self.head is not None:
            if not event.end:
                raise BadReply("upstream sent trailers without the end of the stream")
            self.trailers = trailer_fields(event.fields)
            return
        head = answer_head(event.fields, self._method)
        if head.status < 200:
            self._interim += 1
            if event.end or head.status == 101 or self._interim > MAX_INTERIM:
                raise BadReply(f'upstream sent invalid :status "{head.status}"')
            return
        self.head = head
        if head.bodyless:
            self._left = 0
            self.length = head.content_length
        else:
            self.length = self._left = head.content_length
        if event.end:
            self._left = 0
            if self.length is None or not head.bodyless:
                self.length = 0

    def eof(self) -> list[bytes]:
        """See Reader."""
        if self.done:
            return []
        raise BadReply(PREMATURE, premature=True)


class GrpcPump:
    """Sends the body of the request within the windows: from memory, from a file, or while it arrives.

    running: it is not done. complete: the end of the request is on its way. See body.BodyPump.
    """

    def __init__(self, visit: Visit, stream: Stream, session: ClientConnection) -> None:
        self.complete = False
        self._visit = visit
        self._stream = stream
        self._session = session
        self._waiter: Waiter | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """It waits for the client or for the upstream."""
        return self._task is not None and not self._task.done()

    def start(self, head: bytes) -> None:
        """Send the head, and as much of the body as goes at once; the rest follows in a task."""
        ask, session, stream = self._visit.ask, self._session, self._stream
        if ask.stream:
            body = self._visit.request.exchange.body
            if body is not None and body.size:  # what is here already goes along with the head
                stream.append(head)
            else:
                stream.write(head)
        elif ask.file is None and len(ask.body) <= session.room:
            stream.write(head + session.data(ask.body, end=True) if ask.body else head)
            self.complete = True
            return
        else:
            stream.append(head)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        visit, stream = self._visit, self._stream
        ask = visit.ask
        try:
            if ask.stream:
                await self._stream_body()
            elif ask.file is not None:
                await self._send_file(ask.file)
            else:
                await self._send(ask.body, end=True)
            self.complete = True
        except HttpError as error:
            visit.interrupt(error)
        except ConnectionFailed as error:
            if not stream.closed:  # it is the client that is lost
                visit.interrupt(error)
        except Error as error:
            visit.interrupt(error)

    async def _stream_body(self) -> None:
        exchange = self._visit.request.exchange
        end = False
        while not end:
            piece = await exchange.next_chunk()
            body = exchange.body
            end = not piece or body is None or (body.done and not body.size)
            await self._send(piece, end=end)

    async def _send_file(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            left, at = os.fstat(fd).st_size, 0
            while True:
                piece = os.pread(fd, min(PIECE, left), at)
                at, left = at + len(piece), left - len(piece)
                await self._send(piece, end=not left)
                if not left:
                    return
        finally:
            os.close(fd)

    async def _send(self, piece: bytes, *, end: bool) -> None:
        """Send a piece as the windows open. A window that stays shut for send_timeout is a connection that is stuck."""
        session, stream = self._session, self._stream
        at = 0
        while True:
            room = session.room
            left = len(piece) - at
            if room or not left:
                part = piece[at : at + room] if room < left or at else piece
                at += len(part)
                stream.write(session.data(part, end=end and at == len(piece)))
                if stream.chain.length:
                    await stream.drained()
                if at == len(piece):
                    return
                continue
            stream.flush()
            await self._wait()

    async def _wait(self) -> None:
        visit = self._visit
        waiter = self._waiter = Waiter(asyncio.get_running_loop(), "send()")
        visit.clock.schedule(waiter, visit.settings.send_timeout)
        try:
            await waiter.future
        except ConnectionFailed:
            self._stream.expired()  # who reads the answer is told
            raise
        finally:
            self._waiter = None
            visit.clock.cancel(waiter)

    def opened(self) -> None:
        """A window may have opened."""
        if self._waiter is not None and self._session.room:
            self._waiter.wake()

    def stop(self) -> None:
        """The upstream wants no more: the connection of the client reads and drops the rest."""
        if self._task is not None:
            self._task.cancel()


class GrpcService(PassService):
    """See service.Service. host: the Host field is that of the configuration, so no :authority is sent."""

    schemes = {"grpc": 0, "grpcs": 0}  # noqa: RUF012 - a table
    scheme = "grpc"
    host = False

    def __init__(self, settings: Settings, plan: FieldPlan, groups: dict[str, Group]) -> None:
        super().__init__(settings, groups)
        self.plan = plan

    def may_stream(self, _request: Request) -> bool:
        """See Service."""
        return True

    def ask(self, request: Request, route: Route, *, stream: bool) -> Ask:
        """See Service. The head is a header block."""
        if self.target is not None:
            uri = safe_target(unparsed(request) or request_uri(request, b"", b""))
        else:
            uri = request_uri(request, b"", b"")
        ask = request.upstream.ask = Ask(request.method, uri)
        if stream:
            ask.stream = True
            ask.length = request.exchange.head.content_length
        else:
            ask.length = body_length(request)
            ask.file = request.body_file
            ask.body = request.body or b""
        fields = [(b":method", request.method), (b":path", uri), (b":scheme", b"https" if route.tls else b"http")]
        if not self.host:
            fields.append((b":authority", route.host))
        for line in self.plan.lines(request).split(b"\r\n"):
            name, colon, value = line.partition(b": ")
            if colon:
                fields.append((name.lower(), value))
        ask.head = encode_fields(fields)
        return ask

    def talk(self, visit: Visit, stream: Stream) -> tuple[GrpcPump, GrpcReader]:
        """See Service: a kept connection goes on where it was."""
        sessions, ask = visit.route.group.sessions, visit.ask
        session = sessions.get(stream.fd) if visit.cached else None
        if session is None:
            session = sessions[stream.fd] = ClientConnection(self.settings.buffer_size)
        pump = GrpcPump(visit, stream, session)
        reader = GrpcReader(session, stream, ask.method)
        bodyless = not ask.stream and ask.file is None and not ask.body
        pump.start(session.begin(ask.head, end=bodyless))
        reader.pump = pump
        return pump, reader
