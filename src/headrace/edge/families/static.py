"""Files: root and index, try_files, ranges, conditional requests. The content of a location without another handler.

https://nginx.org/en/docs/http/ngx_http_core_module.html#try_files, ngx_http_index_module
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, MANY, BaseFamily, number_of, spec, table
from headrace.edge.filesend import send_file
from headrace.edge.head import directory_target
from headrace.edge.ranges import MAX_RANGES
from headrace.edge.values import Value, compile_value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

METHODS: Final = frozenset({b"GET", b"HEAD", b"POST"})
_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class StaticFamily(BaseFamily):
    """index, try_files, and the first content handler that every location has."""

    specs = table(
        spec("index", HSL, 1, MANY),
        spec("try_files", ("server", "location"), 2, MANY),
        spec("if_modified_since", HSL, 1),
        spec("max_ranges", HSL, 1),
    )

    @staticmethod
    def _do_index(scope: Scope, directive: Directive) -> None:
        for i, text in enumerate(directive.args):
            if text.startswith("/") and i != len(directive.args) - 1:
                scope.build.problems.warn(
                    'only the last index in "index" directive should be absolute', directive.place
                )
            scope.add("index", compile_value(text, scope.build.variables, directive.place))

    @staticmethod
    def _do_try_files(scope: Scope, directive: Directive) -> None:
        *files, last = directive.args
        variables, place = scope.build.variables, directive.place
        code = 0
        if last.startswith("="):
            if not last[1:].isdigit() or int(last[1:]) > 999:
                raise ConfError(f'invalid code "{last}"', place)
            code = int(last[1:])
        entries = [
            (compile_value(text.removesuffix("/") or text, variables, place), text.endswith("/")) for text in files
        ]
        scope.set_once(directive, (tuple(entries), compile_value(last, variables, place), code))

    @staticmethod
    def _do_if_modified_since(scope: Scope, directive: Directive) -> None:
        if directive.args[0] not in ("off", "exact", "before"):
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        scope.set_once(directive, directive.args[0])

    @staticmethod
    def _do_max_ranges(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, number_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Add try_files where it is set (it holds for its own level), index and static."""
        location.if_modified_since = scope.get("if_modified_since", "exact")
        location.max_ranges = scope.get("max_ranges", MAX_RANGES)
        tried = scope.own("try_files")
        if tried is None and location.kind == "if":
            tried = scope.get("try_files")
        if tried is not None:
            location.add(phases.PRECONTENT, _try_files(*tried))
        names: list[Value] = scope.get("index", [b"index.html"])
        location.add(phases.CONTENT, _index(tuple(names)))


class FileFamily(BaseFamily):
    """The last content handler of every location: the file that the URI stands for."""

    def compose(self, scope: Scope, location: Location) -> None:
        """Add it behind all others."""
        del scope
        location.add(phases.CONTENT, static)


def _try_files(entries: tuple[tuple[Value, bool], ...], last: Value, code: int) -> Handler:
    def try_files(request: Request) -> int | None:
        location = request.location
        for value, directory in entries:
            uri = evaluate(value, request)
            path, uri = location.tried(request, uri, made=callable(value))
            try:
                mode = os.stat(path).st_mode
            except (OSError, ValueError):
                continue
            if stat.S_ISDIR(mode) is not directory:
                continue
            request.uri = uri
            request.uri_behind_alias = not directory and location.alias_skip < 0 and location.alias is not None
            return None
        if code:
            return code
        target = evaluate(last, request)
        path, mark, args = target.partition(b"?")
        return request.internal_redirect(path, args if mark else None if path.startswith(b"@") else b"")

    return try_files


def _index(names: tuple[Value, ...]) -> Handler:
    def index(request: Request) -> int | None:
        uri = request.uri
        if not uri.endswith(b"/") or request.method not in METHODS:
            return None
        missing = 0
        for value in names:
            name = evaluate(value, request)
            if name.startswith(b"/"):
                return request.internal_redirect(name, None)
            path = request.location.path_of(request) + name
            try:
                mode = os.stat(path).st_mode
            except OSError as error:
                if error.errno in _MISSING:
                    missing = missing or error.errno or 0
                    continue
                return failed(request, "stat", path, error)
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                return request.internal_redirect(uri + name, None)
        folder = request.location.path_of(request)
        if not os.path.isdir(folder.rstrip(b"/") or b"/"):
            message = b'"%b%b" is not found (%d: %b)'
            if request.location.log_not_found:
                name = evaluate(names[0], request)
                request.log_error(log.ERR, message % (folder, name, missing, os.strerror(missing).encode()))
            return 404
        return None

    return index


def static(request: Request) -> phases.Result | Awaitable[phases.Result]:
    """Send the file that the URI stands for."""
    if request.method not in METHODS:
        return 405
    if request.uri.endswith(b"/"):
        return None
    path = request.location.path_of(request)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return failed(request, "open", path, error)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        if stat.S_ISDIR(info.st_mode):
            request.location_out = directory_target(request)
            return 301
        request.log_error(log.CRIT, b'"%b" is not a regular file' % path)
        return 404
    if request.method == b"POST":
        os.close(fd)
        return 405
    request.discard_body()
    return send_file(request, fd, info)


def failed(request: Request, call: str, path: bytes, error: OSError) -> int:
    """Log a failed system call on a file; returns the status to answer."""
    level, status = log.CRIT, 500
    if error.errno in _MISSING:
        level, status = log.ERR, 404
    elif error.errno in {errno.EACCES, errno.ELOOP}:
        level, status = log.ERR, 403
    if status != 404 or request.location.log_not_found:
        text = f"failed ({error.errno}: {error.strerror})".encode()
        request.log_error(level, b'%b() "%b" %b' % (call.encode(), path, text))
    return status
