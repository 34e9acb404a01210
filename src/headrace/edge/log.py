"""The error log in nginx's line format, the files behind both kinds of log, and the port of the log bridge.

    2026/01/02 03:04:05 [error] 123#123: *7 message, client: ..., server: ..., request: "...", host: "..."

Files are opened before the workers are forked (open_files), appended to with single writes, and reopened on demand.
`sinks` is the port of `access_log pipeline:TAG`: each callable gets the tag and the record of a request that has
ended; topology attaches them.
https://nginx.org/en/docs/ngx_core_module.html#error_log
"""

from __future__ import annotations

import errno
import os
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headrace.edge.connection import client_text
from headrace.edge.times import log_time
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.errors import Place

STDERR, EMERG, ALERT, CRIT, ERR, WARN, NOTICE, INFO, DEBUG = range(9)
LEVELS: Final = (b"stderr", b"emerg", b"alert", b"crit", b"error", b"warn", b"notice", b"info", b"debug")

Record = dict[str, str | int | float]
Sink = Callable[[str, int, Record], None]
sinks: Final[list[Sink]] = []
"""Callables that get (tag, time in ns since the epoch, record) for every record of a log into the pipeline."""


def level_number(name: str) -> int | None:
    """The number of a level's name, None when there is no such level."""
    try:
        return LEVELS.index(name.encode())
    except ValueError:
        return None


class LogFile:
    """One file that lines are appended to, shared by all logs that name it.

    at_need: no directive names it, so it is made with its first line only; where that fails, standard error takes it.
    """

    def __init__(self, path: str, *, at_need: bool = False) -> None:
        self.path = path
        self.at_need = at_need
        self.fd = -1

    def open(self) -> None:
        """Open for appending; raises ConfError with nginx's text."""
        if self.fd >= 0:
            return
        if self.path in ("stderr", "/dev/stderr"):
            self.fd = 2
        elif self.path == "/dev/stdout":
            self.fd = 1
        else:
            self.fd = self._open()

    def check(self) -> None:
        """Look whether it can be opened, and make nothing. Raises ConfError with nginx's text."""
        if self.path in ("stderr", "/dev/stderr", "/dev/stdout"):
            return
        if os.path.lexists(self.path):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold the test up
            try:
                os.close(os.open(self.path, flags))
            except OSError as error:
                if error.errno != errno.ENXIO:  # a pipe that nobody reads yet
                    raise ConfError(f'open() "{self.path}" failed ({error.errno}: {error.strerror})') from None
            return
        folder = os.path.dirname(self.path)
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            number = errno.ENOTDIR
        elif not os.access(folder, os.W_OK | os.X_OK):
            number = errno.EACCES
        else:
            return
        raise ConfError(
            f'open() "{self.path}" failed ({number}: {os.strerror(number)})',
            hint=f"nothing can be made in {folder}",
        )

    def _open(self) -> int:
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfError(f'open() "{self.path}" failed ({error.errno}: {error.strerror})') from None

    def reopen(self) -> None:
        """Open the file anew under its name (a rotated log); the old one stays in use when that fails."""
        if self.fd > 2:
            new = self._open()
            os.dup2(new, self.fd, inheritable=False)
            os.close(new)

    def write(self, data: bytes) -> None:
        """Append; a full disk loses the line, not the worker."""
        if self.fd < 0:
            self._open_late()
        try:
            os.write(self.fd, data)
        except OSError:
            return

    def write_at(self, level: int, data: bytes) -> None:
        """Append a line of an error log; targets that know levels make something of it."""
        del level
        self.write(data)

    def _open_late(self) -> None:
        try:
            self.open()
        except ConfError:
            if not self.at_need:
                raise
            self.fd = 2

    def close(self) -> None:
        """Close the file (standard streams stay open)."""
        if self.fd > 2:
            os.close(self.fd)
        self.fd = -1


captures: list[Callable[[int, bytes], None]] = []
"""Who gets every line of every error log beside the files: called with the level and the line."""


class ErrorLog:
    """Where messages of one level of the configuration go: files, each with the least urgent level it takes."""

    def __init__(self, targets: Iterable[tuple[LogFile, int]]) -> None:
        self.targets = tuple(targets)
        self.level = max((level for _, level in self.targets), default=STDERR)
        """The least urgent level that anybody takes: a message above it need not be made."""

    def line(self, level: int, message: bytes) -> None:
        """One message without a request."""
        if level > self.level:
            return
        text = b"%b [%b] %d#%d: %b\n" % (log_time(), LEVELS[level], os.getpid(), threading.get_native_id(), message)
        for capture in captures:
            capture(level, text[:-1])
        for file, least in self.targets:
            if level <= least:
                file.write_at(level, text)

    def request_line(self, request: Request, level: int, message: bytes) -> None:
        """One message about a request, with the request described behind it."""
        if level <= self.level:
            self.line(level, b"*%d %b%b" % (request.exchange.conn.serial, message, describe(request)))

    def fault(self, request: Request, error: BaseException) -> None:
        """A fault of ours in a request, with its traceback."""
        text = "".join(traceback.format_exception(error)).rstrip()
        self.request_line(request, ERR, b"unexpected error: " + text.encode("utf-8", "backslashreplace"))


def describe(request: Request) -> bytes:
    """What nginx writes behind a message about a request."""
    var = request.server.variables.find
    line_of, host_of = var(b"request"), request.header_in(b"host")
    line = line_of(request) if line_of else None
    text = b", client: %b, server: %b" % (client_text(request), request.server.name)
    if line:
        text += b', request: "%b"' % line
    if request.upstream is not None:
        text += request.upstream.suffix()
    if host_of is not None:
        text += b', host: "%b"' % host_of
    referrer = request.header_in(b"referer")
    if referrer:
        text += b', referrer: "%b"' % referrer
    return text


class Logs:
    """All log files of a configuration, by path."""

    def __init__(self) -> None:
        self.files: dict[str, LogFile] = {}

    def file(self, path: str, *, at_need: bool = False) -> LogFile:
        """The file of a path; the same object for the same path. It is opened at need when all who ask say so."""
        found = self.files.get(path)
        if found is None:
            found = self.files[path] = LogFile(path, at_need=at_need)
        found.at_need = found.at_need and at_need
        return found

    def check_files(self) -> None:
        """Look whether all can be opened; raises ConfError naming one that cannot."""
        for file in self.files.values():
            file.check()

    def open_files(self) -> None:
        """Open all but those for which a line is waited for; raises ConfError naming the one that fails."""
        for file in self.files.values():
            if not file.at_need:
                file.open()

    def reopen(self) -> None:
        """Reopen all, for rotation. Raises ConfError when one cannot be opened (it keeps the old file)."""
        for file in self.files.values():
            file.reopen()


def parse_level(args: tuple[str, ...], place: Place | None) -> int:
    """The level of an error_log directive; raises ConfError for unknown ones."""
    if len(args) < 2:
        return ERR
    level = level_number(args[1])
    if level is None or level == STDERR:
        raise ConfError(f'invalid log level "{args[1]}"', place)
    return level
