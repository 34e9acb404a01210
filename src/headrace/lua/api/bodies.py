"""A request body that the script makes: piece by piece (init_body, append_body, finish_body), or from a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.edge.body import open_spool, write_spool
from headrace.edge.log import CRIT

if TYPE_CHECKING:
    from headrace.edge.request import Request

_NOT_READ = b"request body not read yet"
_NOT_BEGUN = b"request_body not initialized"


class _Making:
    """room: bytes that are kept in memory; what is more goes to a temporary file."""

    __slots__ = ("pieces", "room", "size", "spool")

    def __init__(self, room: int) -> None:
        self.room = room
        self.size = 0
        self.pieces: list[bytes] = []
        self.spool: int | None = None

    def close(self) -> None:
        if self.spool is not None:
            os.close(self.spool)
            self.spool = None


class BodiesApi:
    """requests: live requests by handle."""

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self._making: dict[int, _Making] = {}
        self._own: dict[int, bytes] = {}
        """Files that go with their requests, or with the next file."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        names = ("init_body", "append_body", "finish_body", "set_body_file")
        return {name: getattr(self, name) for name in names}

    def init_body(self, request_id: int, room: int) -> bytes | None:
        """Begin a body; room: bytes in memory, -1: client_body_buffer_size. Returns why that cannot be."""
        request = self.requests[request_id]
        if not request.body_read:
            return _NOT_READ
        self._drop(request_id)
        self._making[request_id] = _Making(int(room) if room >= 0 else request.location.body_buffer)
        request.on_cleanup(lambda: self._drop(request_id))
        request.body, request.body_file = b"", None
        return None

    def append_body(self, request_id: int, data: bytes) -> bytes | None:
        """Add to a body. Returns why that cannot be."""
        making = self._making.get(request_id)
        if making is None:
            return _NOT_BEGUN
        making.size += len(data)
        try:
            if making.spool is None and making.size > making.room:
                making.spool = open_spool(self.requests[request_id])
                for piece in making.pieces:
                    write_spool(making.spool, piece)
                making.pieces = []
            if making.spool is None:
                making.pieces.append(data)
            else:
                write_spool(making.spool, data)
        except OSError:
            return b"fail to write file"
        return None

    def finish_body(self, request_id: int) -> bytes | None:
        """The body is complete: it is the request's from now on. Returns why that cannot be."""
        making = self._making.get(request_id)
        if making is None:
            return _NOT_BEGUN
        request = self.requests[request_id]
        if making.spool is None:
            request.body = b"".join(making.pieces)
        else:
            request.body = None
        _declare(request, making.size)
        self._drop(request_id)
        return None

    def set_body_file(self, request_id: int, path: bytes, remove: int) -> bytes | None:
        """Take a file as the body; remove: it is deleted when the request ends. Returns why that cannot be."""
        request = self.requests[request_id]
        if not request.body_read:
            return _NOT_READ
        try:
            size = os.stat(path).st_size
        except OSError as error:
            text = f'stat() "{os.fsdecode(path)}" failed ({error.errno}: {error.strerror})'
            request.log_error(CRIT, text.encode("utf-8", "surrogateescape"))
            return b'stat() "%b" failed' % path
        request.body, request.body_file = None, os.fsdecode(path)
        if self._own.get(request_id, path) != path:
            self._remove(request_id)
        if remove:
            self._own[request_id] = path
            request.on_cleanup(lambda: self._remove(request_id))
        _declare(request, size)
        return None

    def _remove(self, request_id: int) -> None:
        path = self._own.pop(request_id, None)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _drop(self, request_id: int) -> None:
        making = self._making.pop(request_id, None)
        if making is not None:
            making.close()


def _declare(request: Request, size: int) -> None:
    request.change_headers_in().set_all(b"Content-Length", (b"%d" % size,))
