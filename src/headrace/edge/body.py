"""The request body: in memory, or in a temporary file past client_body_buffer_size (or always, when so configured).

Limits count decoded bytes whatever the framing, so that a chunked body is refused like any other (413).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat
from typing import TYPE_CHECKING

from headrace.core.http1.frame import CONTINUE
from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from headrace.edge.request import Request


def read_body(request: Request) -> Awaitable[None] | None:
    """Read the whole body; see Request.read_body."""
    if request.body_read:
        return None
    exchange = request.exchange
    data = exchange.body_now()
    if data is None:
        return _read(request)
    if not data and exchange.body is None and request.may_have(b"expect:"):
        _go_ahead(request)
    _check(request, len(data))
    request.body_read = True
    if data and (request.location.body_in_file != "off" or len(data) > _in_memory(request)):
        _to_file(request, data)
    else:
        request.body = data
    return None


def discard_body(request: Request) -> None:
    """Leave the body to the connection, which reads and drops it before the next request."""
    request.body_read = True


def refuse_broken_body(request: Request) -> None:
    """Raise the HttpError of a body that was found broken already, for handlers that answer without reading it."""
    body = request.exchange.body
    if body is not None and isinstance(body.error, HttpError):
        raise body.error


def _check(request: Request, size: int) -> None:
    limit = request.location.max_body
    if limit and size > limit:
        raise HttpError(413, "client intended to send too large chunked body")


def _go_ahead(request: Request) -> None:
    """A client that waits for a word before it sends no body at all gets it too, as from nginx."""
    head = request.exchange.head
    if head.version == 11 and (request.header_in(b"expect") or b"").lower() == b"100-continue":
        request.exchange.interim(CONTINUE)


def _in_memory(request: Request) -> int:
    """Bytes that a body may have without going to a file: a quarter more than the buffer if it is known beforehand."""
    buffer, head = request.location.body_buffer, request.exchange.head
    return buffer if head.version == 20 or head.content_length is None else buffer + (buffer >> 2)


def _to_file(request: Request, data: bytes) -> None:
    try:
        spool = open_spool(request)
        try:
            write_spool(spool, data)
        finally:
            os.close(spool)
    except OSError as error:
        raise _failed(request, error) from error


def _failed(request: Request, error: OSError) -> HttpError:
    name = request.body_file or request.location.body_temp
    return HttpError(500, f'temporary file "{name}" failed ({error.errno}: {error.strerror})')


async def _read(request: Request) -> None:
    request.body_read = True
    pieces: list[bytes] = []
    size = 0
    most = _in_memory(request)
    spool: int | None = None
    try:
        while piece := await request.exchange.next_chunk():
            size += len(piece)
            _check(request, size)
            if spool is None and (size > most or request.location.body_in_file != "off"):
                spool = open_spool(request)
                for earlier in pieces:
                    write_spool(spool, earlier)
                pieces = []
            if spool is None:
                pieces.append(piece)
            else:
                write_spool(spool, piece)
    except OSError as error:  # the disk is full, the folder is another user's: this request ends, no other
        raise _failed(request, error) from error
    finally:
        if spool is not None:
            os.close(spool)
    if spool is None:
        request.body = b"".join(pieces)


def make_temp_folder(path: str, owner: tuple[int, int]) -> None:
    """Make the folder of temporary files for workers that could not make it themselves. Raises OSError.

    owner: (uid, gid) of the workers. A folder that is there becomes theirs too, as in nginx.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.stat(path)
    if (found.st_uid, stat.S_IMODE(found.st_mode)) != (owner[0], 0o700):
        os.chown(path, *owner)
        os.chmod(path, 0o700)


def open_spool(request: Request) -> int:
    """The temporary file of a body, open for writing; it is removed with the request. Raises OSError."""
    folder = request.location.body_temp
    os.makedirs(folder, mode=0o700, exist_ok=True)
    fd, path = _make(folder)
    request.body_file = path
    if request.location.body_in_file != "on":
        request.on_cleanup(lambda: _remove(path))
    request.log_error(5, b"a client request body is buffered to a temporary file %b" % os.fsencode(path))
    return fd


def _make(folder: str) -> tuple[int, str]:
    """A new file with a number for a name, as nginx's; workers begin at numbers of their own."""
    while True:
        path = f"{folder}/{next(_numbers):010d}"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path
        except FileExistsError:
            continue


def _fresh() -> Iterator[int]:
    return itertools.count(secrets.randbelow(1 << 32))


def _begin_anew() -> None:
    global _numbers  # noqa: PLW0603 - each process has its own
    _numbers = _fresh()


_numbers = _fresh()
os.register_at_fork(after_in_child=_begin_anew)


def write_spool(fd: int, data: bytes) -> None:
    """Write all of it. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
