"""Listening sockets, and accepting from them fairly.

Workers share a listener, and whoever wakes first could take a whole burst. So a worker accepts one
connection, and when more are waiting it stands back for a millisecond so that its neighbours get theirs.
What is still there after that nobody else wanted: the worker takes more each time. A connection that comes
alone is taken at once, except by the worker that took the one before: it lets the others try first, and
stops being so polite while nobody answers. All that workers share for this is a count of what was accepted.
Out of descriptors, a worker stands back for half a second and says so once.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import socket
import stat
from typing import TYPE_CHECKING, Any

from headrace import errors

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headrace.core.clock import Clock, Deadline
    from headrace.core.owner import Address

BACKLOG = 511  # nginx's default
_BATCH = 32
_IMPATIENCE = 64  # connections taken without asking, when nobody else has wanted one for long
_STAND_BACK = 0.001  # seconds; long enough for a sleeping neighbour to wake
_BACK_OFF = 0.5  # seconds, as nginx's accept_mutex_delay
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListeningSocket(socket.socket):
    """A socket with a number that all processes forked from its opener see: how many were accepted."""

    __slots__ = ("turns",)

    def __init__(self, family: int, kind: int, proto: int = 0, fileno: int | None = None) -> None:
        super().__init__(family, kind, proto, fileno)
        self.turns = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")


def open_listener(
    address: Address,
    *,
    backlog: int = BACKLOG,
    reuseport: bool = False,
    mode: int | None = None,
    ipv6only: bool = True,
) -> socket.socket:
    """Bind and listen. address: (host, port), host "" or "*" for every IPv4 address, or "unix:/path".

    mode: permissions of a unix socket. A socket file that a dead process left is replaced.
    errors.Error (kind "bind", "listen" or "dns") with nginx's wording, the OSError as its cause.
    """
    if isinstance(address, str):
        return _open_unix(address.removeprefix("unix:"), backlog, mode)
    host, port = address[0], address[1]
    family, where = numeric("0.0.0.0" if host in {"", "*"} else host, port)
    name = f"[{where[0]}]:{port}" if family == socket.AF_INET6 else f"{where[0]}:{port}"
    sock = ListeningSocket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(ipv6only))
        if reuseport:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        sock.close()
        raise failed("setsockopt", name, error) from error
    return _bind(sock, where, name, backlog)


def adopt_listener(fd: int) -> socket.socket:
    """A listening socket that was inherited (from a master, an older generation, systemd).

    errors.Error (kind "inherit") when the descriptor is none.
    """
    try:
        sock = socket.socket(fileno=fd)
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        made = errors.Error(f"inherited descriptor {fd} is not a socket ({error.strerror})", kind="inherit")
        raise made from error
    if not listens:
        sock.detach()
        raise errors.Error(f"inherited socket {fd} does not listen", kind="inherit")
    sock.setblocking(False)
    return sock


def remove_unix(sock: socket.socket) -> None:
    """Remove the file of a unix listener; for the one who opened it, when no other process listens on it."""
    if sock.family == socket.AF_UNIX:
        path = sock.getsockname()
        if path and not _is_abstract(path):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _open_unix(path: str, backlog: int, mode: int | None) -> socket.socket:
    sock: socket.socket = ListeningSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    where = "\0" + path[1:] if path.startswith("@") else path
    if not _is_abstract(where):
        _remove_stale(where)
    sock = _bind(sock, where, f"unix:{path}", backlog)
    if mode is not None and not _is_abstract(where):
        try:
            os.chmod(where, mode)
        except OSError as error:
            sock.close()
            raise failed("chmod", f"unix:{path}", error) from error
    return sock


def _is_abstract(path: str | bytes) -> bool:
    return path[:1] in {"\0", b"\0"}


def _remove_stale(path: str) -> None:
    """Remove a socket file that nobody listens on; any other file is left for bind to complain about."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as test:
        test.setblocking(False)
        number = test.connect_ex(path)
    if number == errno.ECONNREFUSED:
        with contextlib.suppress(OSError):
            os.unlink(path)


def numeric(host: str, port: int, kind: int = socket.SOCK_STREAM) -> tuple[int, Any]:
    """Family and address of a host and port to bind to. Raises Error (kind "dns")."""
    try:
        found = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise errors.Error(f'host not found in "{host}:{port}" of the listener', kind="dns") from error
    return found[0][0], found[0][4]


def _bind(sock: socket.socket, where: Any, name: str, backlog: int) -> socket.socket:
    call = "bind"
    try:
        sock.bind(where)
        call = "listen"
        sock.listen(min(backlog, 0x7FFFFFFF))  # more is no C int; the system has its own limit below
    except OSError as error:
        sock.close()
        raise failed(call, name, error) from error
    sock.setblocking(False)
    return sock


def failed(call: str, name: str, error: OSError) -> errors.Error:
    """The error of a call that should have opened a socket, in nginx's words."""
    number = error.errno or 0
    text = os.strerror(number) if number > 0 else str(error)
    return errors.Error(f"{call}() to {name} failed ({number}: {text})", kind=call)


class Listener:
    """Accepts connections of one listening socket, which stays open for the other workers and generations.

    accept: called with each new socket (non-blocking, TCP_NODELAY) and the peer's address.
    max_connections: accepted and not yet `released()`; at the limit, new ones wait in the backlog; 0: none.
    shared: other processes accept from the same socket.
    exhausted: called with the OSError, once for each back-off, when descriptors or memory ran out.
    """

    __slots__ = (
        "_accept", "_alone", "_armed", "_batch", "_clock", "_closed", "_exhausted", "_loop", "_nodelay",
        "_pending", "_resume", "_seen", "_shared", "_skip", "_standing_back", "_turns", "_waited", "accepted",
        "address", "backed_off", "connections", "max_connections", "paused", "sock",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        accept: Callable[[socket.socket, Address], None],
        *,
        max_connections: int = 0,
        shared: bool = True,
        exhausted: Callable[[OSError], object] | None = None,
    ) -> None:
        self.sock = sock
        self.address: Address = sock.getsockname()
        self.max_connections = max_connections
        self.connections = 0
        self.accepted = 0
        self.backed_off = 0
        self.paused = True
        self._loop = loop
        self._clock = clock
        self._accept = accept
        self._shared = shared
        self._exhausted = exhausted
        self._nodelay = sock.family != socket.AF_UNIX
        self._batch = 1 if shared else _BATCH
        self._turns: memoryview | None = getattr(sock, "turns", None) if shared else None
        self._seen = -1  # the count after our last connection
        self._waited = False  # we have stood back for the one that is waiting
        self._alone = 0  # how long nobody has wanted what we left
        self._skip = 0  # so many we take without asking
        self._pending = select.poll()
        self._pending.register(sock.fileno(), select.POLLIN)
        self._armed = False
        self._closed = False
        self._resume: Deadline | None = None
        self._standing_back: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept from now on; also after `pause`."""
        self.paused = False
        self._arm()

    def pause(self) -> None:
        """Accept nothing until `start`; connections wait in the backlog."""
        self.paused = True
        self._disarm()

    def released(self) -> None:
        """One of the accepted connections is over."""
        self.connections -= 1
        self._arm()

    def close(self) -> None:
        """Accept nothing any more and close our descriptor of the socket."""
        if self._closed:
            return
        self.pause()
        self._closed = True
        self._cancel_waits()
        self.sock.close()

    def _full(self) -> bool:
        return 0 < self.max_connections <= self.connections

    def _arm(self) -> None:
        waiting = self._resume is not None or self._standing_back is not None
        if not (self._armed or self._closed or self.paused or waiting or self._full()):
            self._armed = True
            self._loop.add_reader(self.sock.fileno(), self._readable)

    def _disarm(self) -> None:
        if self._armed:
            self._armed = False
            self._loop.remove_reader(self.sock.fileno())

    def _cancel_waits(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._standing_back is not None:
            self._standing_back.cancel()
            self._standing_back = None

    def _readable(self) -> None:
        if self._turns is not None and self._others_first():
            self._stand_back()
            return
        for _ in range(self._batch):
            if self.paused or self._full():
                self._disarm()
                return
            try:
                sock, peer = self.sock.accept()
            except BlockingIOError:
                self._batch = 1 if self._shared else _BATCH
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._back_off(error)
                # Anything else (ECONNABORTED, EPERM, EPROTO) is over with that connection: accept(2).
                return
            self._take(sock, peer)
        if self._shared and not self.paused:
            self._look_for_more()

    def _take(self, sock: socket.socket, peer: Address) -> None:
        self.accepted += 1
        self.connections += 1
        if self._turns is not None:
            self._seen = self._turns[0] = self._turns[0] + 1  # not atomic, and need not be
        try:
            sock.setblocking(False)
            if self._nodelay:
                with contextlib.suppress(OSError):  # gone already: the first recv says so
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(sock, peer)
        except Exception as error:  # noqa: BLE001 - reported; the next connection must be served
            sock.close()
            self.connections -= 1
            self._loop.call_exception_handler({"message": "a new connection failed", "exception": error})

    def _others_first(self) -> bool:
        """Whether the connection that waits is offered to the other workers first."""
        assert self._turns is not None
        if self._turns[0] != self._seen:  # somebody else had the last one, or it is our first
            self._waited = False
            self._alone = self._skip = 0
            return False
        if self._waited:
            self._waited = False
            self._alone = self._skip = min(2 * self._alone or 1, _IMPATIENCE)
            return False
        if self._skip:
            self._skip -= 1
            return False
        self._waited = True
        return True

    def _look_for_more(self) -> None:
        if not self._pending.poll(0):
            self._batch = 1
            return
        self._batch = min(self._batch + 1, _BATCH)
        self._stand_back()

    def _stand_back(self) -> None:
        self._disarm()
        self._standing_back = self._loop.call_later(_STAND_BACK, self._stood_back)

    def _stood_back(self) -> None:
        self._standing_back = None
        self._arm()

    def _back_off(self, error: OSError) -> None:
        self._disarm()
        self.backed_off += 1
        self._resume = self._clock.deadline(_BACK_OFF, self._backed_off)
        if self._exhausted is not None:
            self._exhausted(error)

    def _backed_off(self) -> None:
        self._resume = None
        self._arm()
