"""The answer: output, flush, eof, and where the request goes next."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.edge.uri import normalise
from headrace.errors import ConnectionFailed, HttpError, Timeout

if TYPE_CHECKING:
    from headrace.edge.request import Request


class OutputApi:
    """requests: live requests by handle. flushed(id, why or None): the VM's entry for the end of a flush."""

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self.flushed: Callable[[int, bytes | None], None] = lambda _id, _why: None
        self._tasks: set[asyncio.Task[None]] = set()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {
            "output": self.output,
            "output_rest": self.output_rest,
            "send_headers": self.send_headers,
            "headers_sent": self.headers_sent,
            "buffering": self.buffering,
            "flush": self.flush,
            "eof": self.eof,
            "exec": self.exec,
        }

    def output(self, request_id: int, data: bytes) -> None:
        """A part of the body; the header goes first."""
        self.requests[request_id].output(data)

    def output_rest(self, request_id: int, data: bytes, held: int) -> None:
        """The last part of the body. held: with HTTP/1.0 it is all of it, and its length goes into the header."""
        request = self.requests[request_id]
        if held and request.exchange.head.version == 10 and not request.header_sent and request.content_length is None:
            request.content_length = len(data)
        request.output(data)

    def send_headers(self, request_id: int) -> None:
        """Decide the header and send it."""
        self.requests[request_id].push()

    def headers_sent(self, request_id: int) -> int:
        """1 when the header is decided."""
        return 1 if self.requests[request_id].header_sent else 0

    def buffering(self, request_id: int) -> int:
        """1 for a client of HTTP/1.0 whose header is not sent: its answer is kept, to be sent with its length."""
        request = self.requests[request_id]
        return 1 if request.exchange.head.version == 10 and not request.header_sent else 0

    def flush(self, request_id: int, wait: int) -> int | tuple[None, bytes]:
        """1: all is in the kernel; 0: the end of the flush will be told; None and why when the client is gone."""
        request = self.requests[request_id]
        if request.exchange.aborted:
            return None, b"client aborted"
        request.push()
        if not wait or not request.exchange.conn.stream.chain.length:
            return 1
        task = asyncio.get_running_loop().create_task(self._flush(request_id, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return 0

    async def _flush(self, request_id: int, request: Request) -> None:
        why = None
        try:
            await request.flush()
        except Timeout:
            why = b"timeout"
        except ConnectionFailed:
            why = b"client aborted"
        except Exception:  # noqa: BLE001 - the handler waits for an answer, whatever happened
            request.log_error(2, b"flushing the answer: " + traceback.format_exc().encode())
            why = b"nginx output filter error"
        self.flushed(request_id, why)

    def eof(self, request_id: int) -> None:
        """The client has the whole answer; the request itself ends with its handler."""
        request = self.requests[request_id]
        request.push()
        if not request.body_filters:  # they see the end of the body when the request ends
            request.exchange.finish()

    def exec(self, request_id: int, uri: bytes, args: bytes | None) -> int | None:
        """An internal redirect; returns the code the handler ends with, None for a URI that cannot be."""
        if not uri.startswith(b"@"):
            try:
                uri = normalise(uri)
            except HttpError:
                return None
        return self.requests[request_id].internal_redirect(uri, args)
