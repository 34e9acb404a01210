"""The request body on its way to the upstream: from memory, from a file, or from the client while it arrives."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from headrace.errors import ConnectionFailed, Error, HttpError

if TYPE_CHECKING:
    from headrace.core.stream import Stream
    from headrace.edge.upstream.ask import Ask
    from headrace.edge.upstream.visit import Visit

PIECE: Final = 32768
SHORT: Final = 16384


def streams(visit: Visit) -> bool:
    """The body of the request is handed on while it arrives."""
    request = visit.request
    if visit.settings.request_buffering or request.body_read or request.parent is not None:
        return False
    body = request.exchange.body
    return body is not None and not body.done and visit.service.may_stream(request)


def send_ask(visit: Visit, stream: Stream) -> BodyPump | None:
    """Write the request; what does not go at once follows by itself. The pump of a body that still arrives."""
    ask = visit.ask
    if ask.stream:
        body = visit.request.exchange.body
        if body is not None and body.size:  # what is here already goes along with the head
            stream.append(ask.head)
        else:
            stream.write(ask.head)
        return BodyPump(visit, stream)
    if ask.file is not None:
        _send_file(ask, ask.file, stream)
    elif ask.wrap is not None:
        stream.append(ask.head)
        for at in range(0, len(ask.body), PIECE):
            piece = ask.body[at : at + PIECE]
            before, behind = ask.wrap(len(piece))
            stream.append(before + piece + behind)
        stream.append(ask.tail)
        stream.flush()
    elif len(ask.body) < SHORT:
        stream.write(ask.head + ask.body + ask.tail)
    else:
        stream.append(ask.head)
        stream.append(ask.body)
        stream.append(ask.tail)
        stream.flush()
    return None


def _send_file(ask: Ask, path: str, stream: Stream) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    stream.append(ask.head)
    left, at = os.fstat(fd).st_size, 0
    while left:
        size = left if ask.wrap is None else min(left, PIECE)
        before, behind = (b"", b"") if ask.wrap is None else ask.wrap(size)
        stream.append(before)
        stream.chain.append_file(fd, at, size)
        stream.append(behind)
        at, left = at + size, left - size
    stream.append(ask.tail)
    stream.chain.mark(lambda _error: os.close(fd))
    stream.flush()


class BodyPump:
    """Hands the body on while it arrives: a piece is asked of the client when the one before is in the kernel.

    running: it is not done. complete: all of the body is sent.
    """

    def __init__(self, visit: Visit, stream: Stream) -> None:
        self.complete = False
        self._visit = visit
        self._stream = stream
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def running(self) -> bool:
        """It waits for the client or for the upstream."""
        return not self._task.done()

    async def _run(self) -> None:
        visit, stream = self._visit, self._stream
        exchange, ask = visit.request.exchange, visit.ask
        try:
            body, last = exchange.body, False
            while not last:
                piece = await exchange.next_chunk()
                last = not piece or body is None or (body.done and not body.size)
                if piece and ask.wrap is not None:
                    before, behind = ask.wrap(len(piece))
                    piece = before + piece + behind
                if last:
                    piece += ask.tail  # in one write: there is nothing to wait for
                stream.write(piece)
                if stream.chain.length and not last:
                    await stream.drained()
            self.complete = True
        except HttpError as error:
            visit.interrupt(error)
        except ConnectionFailed as error:
            if not stream.closed:  # it is the client that is lost
                visit.interrupt(error)
        except Error as error:
            visit.interrupt(error)

    def stop(self) -> None:
        """The upstream wants no more: the connection reads and drops the rest."""
        self._task.cancel()
