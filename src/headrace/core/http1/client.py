"""One request and its answer on a stream that is already open.

The caller owns the stream (a lane, a pool, an upstream) and decides by `Response.keep_alive` whether it
may carry another request: it is True only when the answer was read to its end, trailers included, and
neither side asked to close.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.core.http1.events import EndOfMessage, ResponseHead
from headrace.core.http1.parse import ProtocolError, ResponseParser
from headrace.errors import ConnectionFailed, Error, Timeout

if TYPE_CHECKING:
    from headrace.core.stream import Stream

# Beyond what the caller keeps, so many bytes are still read for the sake of the connection.
MAX_DROPPED = 1 << 20

# Who takes many small requests answers them with the same bytes again and again (with a Date, for a second
# each). Equal bytes that are a whole answer mean the same answer, so the last few are kept.
_ANSWERS_KEPT = 64
_ANSWER_KEPT_SIZE = 512
_answers: dict[tuple[bytes, bytes], Response] = {}


class NoReply(ConnectionFailed):
    """The request got no (whole) answer.

    reply_started: a byte of an answer was seen, so the peer has acted on the request; without one it is
    safe to send the request once more on a fresh connection when the old one was reused.
    """

    kind = "no_reply"

    def __init__(self, message: str, *, reply_started: bool, kind: str | None = None) -> None:
        super().__init__(message, kind=kind)
        self.reply_started = reply_started


class ReplyTimeout(NoReply, Timeout):
    """No byte came within read_timeout."""

    kind = "timeout"


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. It may be shared with others who got the same bytes: its lists are not to be changed.

    body: at most max_body bytes of it, `truncated` tells when there were more. keep_alive: the stream may
    carry another request. trailers: fields after a chunked body.
    """

    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    keep_alive: bool
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    truncated: bool = False
    head: ResponseHead | None = None

    def header(self, name: bytes) -> bytes | None:
        """Value of the field `name` (lower case); None without one."""
        return None if self.head is None else self.head.header(name)


async def exchange(
    stream: Stream,
    request_head: bytes,
    body: bytes = b"",
    *,
    method: bytes = b"GET",
    read_timeout: float | None = 60.0,
    max_body: int = 1 << 20,
) -> Response:
    """Send a request and read its answer.

    read_timeout: seconds without any byte of the answer (as Net::HTTP), counted anew as long as the peer
    takes bytes of the request. max_body: bytes of the body to keep; the rest is read and dropped, and when
    there is much more the connection is given up (keep_alive False) rather than the answer.

    Raises NoReply, ReplyTimeout or ProtocolError, each with `reply_started`. The stream is then of no
    further use: the caller closes it.
    """
    parser: ResponseParser | None = None
    chain = stream.chain
    if body:
        stream.append(request_head)
    stream.write(body or request_head)
    pieces: list[bytes] = []
    kept = dropped = reads = 0
    end: EndOfMessage | None = None
    while end is None and dropped <= MAX_DROPPED:
        unsent = chain.length
        try:
            data = await stream.read(timeout=read_timeout)
        except Timeout as error:
            if chain.length < unsent:
                continue
            raise ReplyTimeout(error.message, reply_started=reads > 0) from error
        except ConnectionFailed as error:
            raise NoReply(error.message, reply_started=reads > 0) from error
        if parser is None:
            known = _answers.get((method, data))
            if known is not None and len(known.body) <= max_body and not chain.length:
                return known
            parser = ResponseParser(method)
        reads += bool(data)
        try:
            events = parser.feed(data) if data else parser.feed_eof()
        except ProtocolError as error:
            raise _no_reply(error, reads > 0) from error
        for event in events:
            if isinstance(event, bytes):
                room = max_body - kept
                piece = event if len(event) <= room else event[:room]
                dropped += len(event) - len(piece)
                if piece:
                    kept += len(piece)
                    pieces.append(piece)
            elif isinstance(event, EndOfMessage):
                end = event
    assert parser is not None
    head = parser.head
    assert head is not None
    response = Response(
        status=head.status,
        reason=head.reason,
        headers=head.headers(),
        body=pieces[0] if len(pieces) == 1 else b"".join(pieces),
        # A request that is not whole on the wire, or bytes beyond the answer: nobody knows what comes next.
        keep_alive=end is not None and head.keep_alive and not parser.leftover and not chain.length and not stream.eof,
        trailers=end.trailers if end is not None else [],
        truncated=dropped > 0,
        head=head,
    )
    # With the end of the connection as its end, an answer is more than its bytes; what else is known may go on.
    if reads == 1 and response.keep_alive == head.keep_alive and not (head.until_close or response.truncated):
        _remember(method, data, response)
    return response


def _remember(method: bytes, data: bytes, response: Response) -> None:
    if len(data) <= _ANSWER_KEPT_SIZE:
        if len(_answers) >= _ANSWERS_KEPT:
            _answers.clear()
        _answers[method, data] = response


def _no_reply(error: Error, started: bool) -> NoReply:
    return NoReply(error.message, reply_started=started, kind=error.kind)
