"""The process: the error log, its numbers, and string functions that Python has in C."""

from __future__ import annotations

import calendar
import hashlib
import hmac
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.edge.families.set_misc import FUNCTIONS

if TYPE_CHECKING:
    from headrace.edge.log import ErrorLog
    from headrace.edge.request import Request
    from headrace.edge.tlsport import Handshake

_DOING = {
    "log": b" while logging request",
    "preread": b" while prereading client data",
    "connect": b" while connecting to upstream",
}
_DATES = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")


def parse_http_time(text: bytes) -> int | None:
    """Seconds since the epoch of an HTTP date (RFC 9110 5.6.7)."""
    for form in _DATES:
        try:
            return calendar.timegm(time.strptime(text.decode("latin-1"), form))
        except ValueError:
            continue
    return None


class ProcessApi:
    """requests: live requests by handle. error_log: for messages of code that runs without a request."""

    def __init__(self, requests: Mapping[int, Request], error_log: ErrorLog) -> None:
        self.requests = requests
        self.context = b""
        """What lines without a request end with."""
        self.handshakes: Mapping[int, Handshake] = {}
        """Handshakes in which a script runs, by handle."""
        self.error_log = error_log
        self._built_by = os.getpid()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {
            "log": self.log,
            "pid": os.getpid,
            "worker_pids": self.worker_pids,
            "has_master": self.has_master,
            "master_pid": os.getppid,
            "signal_graceful_exit": self.signal_graceful_exit,
            "digest": self.digest,
            "hmac_sha1": self.hmac_sha1,
            "parse_http_time": parse_http_time,
            "ndk_function": self.ndk_function,
            "ndk_call": self.ndk_call,
        }

    def log(self, request_id: int, level: int, message: bytes) -> None:
        """One line of the error log."""
        request = self.requests.get(request_id)
        if request is not None:
            if (doing := _DOING.get(request.phase)) is not None:
                message += doing
            elif request.upstream is not None and request.upstream.stage:
                message += b" while " + request.upstream.stage
            request.log_error(level, message)
        elif request_id in self.handshakes:
            handshake = self.handshakes[request_id]
            handshake.log_error(level, message + handshake.note)
        elif request_id < 0:
            self.error_log.line(level, message + b", context: ngx.timer")
        else:
            self.error_log.line(level, message + self.context)

    def has_master(self) -> int:
        """1 in a process that the one that read the configuration has forked."""
        return 1 if os.getppid() == self._built_by else 0

    @staticmethod
    def signal_graceful_exit() -> None:
        """Let this worker end as at a reload: what is begun is finished."""
        os.kill(os.getpid(), signal.SIGQUIT)

    def worker_pids(self) -> bytes:
        """The processes of all workers, apart by spaces: the children of the master, or this one without a master."""
        if self.has_master():
            master = os.getppid()
            try:
                with open(f"/proc/{master}/task/{master}/children", "rb") as children:
                    return children.read()
            except OSError:
                pass
        return b"%d" % os.getpid()

    @staticmethod
    def ndk_function(name: bytes) -> int:
        """1 when a directive of this name makes a value of one."""
        return 1 if name.decode("latin-1") in FUNCTIONS else 0

    @staticmethod
    def ndk_call(name: bytes, value: bytes) -> bytes | None:
        """The value that a directive of the set-misc module makes of one; None for one that it cannot take."""
        return FUNCTIONS[name.decode("latin-1")](value)

    @staticmethod
    def digest(name: bytes, data: bytes) -> bytes:
        """A digest by its name."""
        return hashlib.new(name.decode(), data, usedforsecurity=False).digest()

    @staticmethod
    def hmac_sha1(key: bytes, data: bytes) -> bytes:
        """RFC 2104 with SHA-1."""
        return hmac.digest(key, data, "sha1")
