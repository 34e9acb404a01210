"""The request: method, URI, arguments and body."""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.edge.log import ERR, INFO
from headrace.errors import ConnectionFailed, HttpError

if TYPE_CHECKING:
    from headrace.edge.request import Request


class RequestApi:
    """requests: live requests by handle. body_ready(id, status or None): the VM's entry for the end of a read."""

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self.body_ready: Callable[[int, int | None], None] = lambda _id, _status: None
        self._tasks: set[asyncio.Task[None]] = set()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = (
            "facts",
            "set_method",
            "http_version",
            "is_internal",
            "start_time",
            "raw_header",
            "set_args",
            "set_uri",
            "read_body",
            "discard_body",
            "body_state",
            "get_body",
            "get_body_file",
            "set_body",
        )
        return {name: getattr(self, name) for name in names}

    def facts(self, request_id: int) -> tuple[bytes, bytes, bytes]:
        """The method, the path and the arguments."""
        request = self.requests[request_id]
        return request.method, request.uri, request.args

    def set_method(self, request_id: int, method: bytes) -> None:
        """Change the method."""
        self.requests[request_id].method = method

    def http_version(self, request_id: int) -> float:
        """1.0, 1.1 or 0.9."""
        return self.requests[request_id].exchange.head.version / 10

    def is_internal(self, request_id: int) -> int:
        """1 within an internal redirect."""
        return 1 if self.requests[request_id].internal else 0

    def start_time(self, request_id: int) -> float:
        """Wall seconds, to the millisecond, at which the request began."""
        request = self.requests[request_id]
        clock = request.exchange.conn.clock
        return round(clock.wall_ns() / 1e9 - request.elapsed(), 3)

    def raw_header(self, request_id: int, no_line: int) -> bytes:
        """The head as the client sent it, with or without the request line."""
        raw = self.requests[request_id].exchange.head.raw
        return raw[raw.find(b"\n") + 1 :] if no_line else raw

    def set_args(self, request_id: int, args: bytes) -> None:
        """Change the query string."""
        self.requests[request_id].args = args

    def set_uri(self, request_id: int, uri: bytes, jump: int) -> None:
        """Change the path."""
        self.requests[request_id].change_uri(uri, jump=bool(jump))

    # body

    def read_body(self, request_id: int) -> int | tuple[int, int]:
        """1: the body is there; 0: its arrival will be told; with a second value, the status of its fault."""
        request = self.requests[request_id]
        try:
            reading = request.read_body()
        except HttpError as error:
            return 1, _fault(request, error)
        if reading is None:
            return 1
        task = asyncio.get_running_loop().create_task(self._read(request_id, request, reading))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return 0

    async def _read(self, request_id: int, request: Request, reading: Awaitable[None]) -> None:
        status = None
        try:
            await reading
        except HttpError as error:
            status = _fault(request, error)
        except ConnectionFailed:
            status = 499
        except Exception:  # noqa: BLE001 - the handler waits for an answer, whatever happened
            request.log_error(2, b"reading the request body: " + traceback.format_exc().encode())
            request.exchange.keep_alive = False
            status = 500
        self.body_ready(request_id, status)

    def discard_body(self, request_id: int) -> None:
        """The body is not wanted."""
        self.requests[request_id].discard_body()

    def body_state(self, request_id: int) -> int:
        """1 when the body was read."""
        return 1 if self.requests[request_id].body_read else 0

    def get_body(self, request_id: int) -> bytes | None:
        """The body in memory."""
        return self.requests[request_id].body or None

    def get_body_file(self, request_id: int) -> bytes | None:
        """The path of the file that has the body."""
        path = self.requests[request_id].body_file
        return None if path is None else os.fsencode(path)

    def set_body(self, request_id: int, data: bytes) -> bytes | None:
        """Replace the body; returns why that cannot be."""
        request = self.requests[request_id]
        if not request.body_read:
            return b"request body not read yet"
        if request.body_file is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(request.body_file)
            request.body_file = None
        request.body = data
        request.change_headers_in().set_all(b"Content-Length", (b"%d" % len(data),))
        return None


def _fault(request: Request, error: HttpError) -> int:
    level = ERR if error.status == 413 or error.status >= 500 else INFO
    request.log_error(level, error.message.encode("utf-8", "surrogateescape"))
    if error.close:
        request.exchange.keep_alive = False
    return error.status
