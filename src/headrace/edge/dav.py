"""PUT, DELETE, MKCOL, COPY, MOVE on files (RFC 4918), as far as nginx has them.

https://nginx.org/en/docs/http/ngx_http_dav_module.html
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.ranges import http_time
from headrace.edge.uri import escape_path, host_only, split_target
from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.phases import Result
    from headrace.edge.request import Request

INFINITY: Final = b"infinity"
_THERE: Final = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR})


@dataclass(frozen=True)
class Dav:
    """What holds for one location. access: mode of files that are made."""

    methods: frozenset[bytes]
    full_path: bool
    delete_depth: int
    access: int

    @property
    def folder_access(self) -> int:
        """Mode of folders that are made: who may read a file may search its folder."""
        return self.access | (self.access & 0o444) >> 2

    def handle(self, request: Request) -> Result | Awaitable[Result]:
        """The content handler; other methods are for the next one."""
        method = request.method
        if method not in self.methods:
            return None
        if method == b"PUT":
            return self._put(request)
        if _has_body(request):
            request.log_error(log.ERR, b"%b with body is unsupported" % method)
            return 415
        request.discard_body()
        if method == b"DELETE":
            return self._delete(request)
        return self._mkcol(request) if method == b"MKCOL" else self._copy(request)

    # PUT

    def _put(self, request: Request) -> Result | Awaitable[Result]:
        if request.uri.endswith(b"/"):
            request.log_error(log.ERR, b"cannot PUT to a collection")
            return 409
        if request.header_in(b"content-range") is not None:
            request.log_error(log.ERR, b"PUT with range is unsupported")
            return 501
        waiting = request.read_body()
        return self._store(request) if waiting is None else self._read(request, waiting)

    async def _read(self, request: Request, waiting: Awaitable[None]) -> Result:
        await waiting
        return self._store(request)

    def _store(self, request: Request) -> Result:
        path = request.location.path_of(request)
        existed = os.path.exists(path)
        if os.path.isdir(path):
            return failed(request, OSError(errno.EISDIR, os.strerror(errno.EISDIR)), 409, b"rename", path)
        folder = os.path.dirname(path)
        try:
            if self.full_path:
                _make_folders(folder, self.folder_access)
            _write(request, path, folder, self.access)
        except OSError as error:
            return failed(request, error, 409, b"rename", path)
        return _made(request, existed=existed)

    # DELETE

    def _delete(self, request: Request) -> Result:
        uri = request.uri
        if self.delete_depth:
            depth = sum(1 for piece in uri.split(b"/") if piece)
            if depth < self.delete_depth:
                request.log_error(log.ERR, b"insufficient URI depth:%d to DELETE" % depth)
                return 409
        path = request.location.path_of(request)
        try:
            info = os.lstat(path)
        except OSError as error:
            return failed(request, error, 409 if error.errno == errno.ENOTDIR else 404, b"lstat", path)
        depth_word = _depth(request, INFINITY)
        if stat.S_ISDIR(info.st_mode):
            if not uri.endswith(b"/"):
                return failed(
                    request, OSError(errno.EISDIR, os.strerror(errno.EISDIR)), 409, b"DELETE", path, as_is=True
                )
            if depth_word != INFINITY:
                request.log_error(log.ERR, b'"Depth" header must be infinity')
                return 400
        elif depth_word not in (b"0", INFINITY):
            request.log_error(log.ERR, b'"Depth" header must be 0 or infinity')
            return 400
        try:
            remove(path)
        except OSError as error:
            return failed(request, error, 404, b"unlink", path)
        request.respond(204, b"", b"")
        return phases.DONE

    # MKCOL

    def _mkcol(self, request: Request) -> Result:
        if not request.uri.endswith(b"/"):
            request.log_error(log.ERR, b"MKCOL can create a collection only")
            return 409
        path = request.location.path_of(request).rstrip(b"/")
        try:
            os.mkdir(path)
            os.chmod(path, self.folder_access)
        except OSError as error:
            return failed(request, error, 409, b"mkdir", path)
        return _made(request, existed=False)

    # COPY, MOVE

    def _copy(self, request: Request) -> Result:
        target = _destination(request)
        if target is None:
            return 400
        if request.uri.endswith(b"/") != target.endswith(b"/"):
            text = b'both URI "%b" and "Destination" URI "%b" should be either collections or non-collections'
            request.log_error(log.ERR, text % (request.uri, target))
            return 409
        depth = _depth(request, INFINITY)
        if depth != INFINITY and not (request.method == b"COPY" and depth == b"0"):
            request.log_error(log.ERR, b'"Depth" header must be 0 or infinity')
            return 400
        overwrite = request.header_in(b"overwrite") or b"T"
        if overwrite.upper() not in (b"T", b"F"):
            request.log_error(log.ERR, b'client sent invalid "Overwrite" header: "%b"' % overwrite)
            return 400
        path = request.location.path_of(request).rstrip(b"/")
        copy = request.location.path_of(request, target).rstrip(b"/")
        existed = os.path.lexists(copy)
        if existed and overwrite.upper() == b"F":
            failed(request, OSError(errno.EEXIST, os.strerror(errno.EEXIST)), 412, b"rename", copy)
            return 412
        if existed and os.path.isdir(copy) and not target.endswith(b"/"):
            request.log_error(log.ERR, b'"%b" could not be %bd to collection' % (path, request.method.lower()))
            return 409
        try:
            self._transfer(request, path, copy, existed=existed)
        except OSError as error:
            return failed(request, error, 404 if not os.path.lexists(path) else 409, request.method, path)
        # A file gives 204 whether there was one before or not, as in nginx.
        request.respond(201 if request.uri.endswith(b"/") else 204, b"", b"")
        return phases.DONE

    def _transfer(self, request: Request, path: bytes, copy: bytes, *, existed: bool) -> None:
        folder = stat.S_ISDIR(os.lstat(path).st_mode)
        if folder != request.uri.endswith(b"/"):
            raise OSError(errno.ENOTDIR if not folder else errno.EISDIR, "collection or not")
        if existed and folder:
            remove(copy)
        if request.method == b"MOVE":
            shutil.move(os.fsdecode(path), os.fsdecode(copy))
        elif folder and _depth(request, INFINITY) == b"0":
            os.mkdir(copy)
            shutil.copystat(path, copy)
        elif folder:
            shutil.copytree(os.fsdecode(path), os.fsdecode(copy), symlinks=True)
        else:
            shutil.copy2(path, copy, follow_symlinks=False)


def failed(request: Request, error: OSError, missing: int, call: bytes, path: bytes, *, as_is: bool = False) -> int:
    """Log a failed system call; the status to answer. missing: that of a path that is not there."""
    level, status = log.CRIT, 500
    if error.errno == errno.ENOENT:
        level, status = log.ERR, missing
    elif error.errno in _THERE:
        level, status = (
            log.ERR,
            missing if as_is or error.errno == errno.EISDIR else 409 if missing == 409 and call == b"lstat" else 405,
        )
    elif error.errno == errno.EACCES:
        level, status = log.ERR, 403
    elif error.errno == errno.ENOSPC:
        status = 507
    text = f"failed ({error.errno}: {os.strerror(error.errno or 0)})".encode()
    request.log_error(level, b'%b "%b" %b' % (call + b"()", path, text))
    return status


def remove(path: bytes) -> None:
    """Remove a file, or a folder with all that it holds. Raises OSError."""
    if stat.S_ISDIR(os.lstat(path.rstrip(b"/")).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _has_body(request: Request) -> bool:
    fields = request.exchange.head
    return bool(fields.content_length) or fields.chunked


def _depth(request: Request, default: bytes) -> bytes:
    given = request.header_in(b"depth")
    return default if given is None else given.strip().lower()


def _destination(request: Request) -> bytes | None:
    """The path that the Destination field names; None, and a line in the log, for none of ours."""
    field = request.header_in(b"destination")
    if field is None:
        request.log_error(log.ERR, b'client sent no "Destination" header')
        return None
    target = field
    if not field.startswith(b"/"):
        scheme, _, rest = field.partition(b"://")
        host, slash, path = rest.partition(b"/")
        own = request.exchange.head.host
        if scheme.lower() not in (b"http", b"https") or not slash or host_only(host) != host_only(own):
            request.log_error(log.ERR, b'client sent invalid "Destination" header: "%b"' % field)
            return None
        target = slash + path
    try:
        return split_target(target)[0]
    except HttpError:
        request.log_error(log.ERR, b'client sent invalid "Destination" header: "%b"' % field)
        return None


def _make_folders(folder: bytes, mode: int) -> None:
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            os.chmod(path, mode)


def _write(request: Request, path: bytes, folder: bytes, mode: int) -> None:
    """The body as a file, whole or not at all: written beside its place, and renamed."""
    fd, name = tempfile.mkstemp(dir=folder, prefix=b".put-")
    try:
        with os.fdopen(fd, "wb") as file:
            if request.body_file is None:
                file.write(request.body or b"")
            else:
                with open(request.body_file, "rb") as body:
                    shutil.copyfileobj(body, file, 1 << 20)
        os.chmod(name, mode)
        date = http_time(request.header_in(b"date") or b"")
        if date is not None:
            os.utime(name, (date, date))
        os.rename(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _made(request: Request, *, existed: bool) -> Result:
    if existed:
        request.respond(204, b"", b"")
        return phases.DONE
    request.location_out = escape_path(request.uri)
    request.respond(201, b"", b"")
    return phases.DONE
