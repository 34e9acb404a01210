"""Opening the listeners of a program in the master, where those of the generation before are kept."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.core.listener import remove_unix
from headrace.errors import Error
from headrace.supervisor.pidfile import system_text

if TYPE_CHECKING:
    import socket

    from headrace.supervisor.log import EngineLog
    from headrace.supervisor.program import Listen

_ATTEMPTS: Final = 5
_PAUSE: Final = 0.5  # seconds, as nginx tries again to bind an address that is in use


def open_all(
    wanted: Iterable[Listen], kept: Mapping[str, socket.socket], log: EngineLog, *, patient: bool = True
) -> dict[str, socket.socket]:
    """Sockets for all of `wanted`, those with a key of `kept` taken from there.

    patient: try again while an address is in use. Raises Error with nginx's text, and then leaves nothing
    open that was not open before.
    """
    result: dict[str, socket.socket] = {}
    fresh: list[socket.socket] = []
    try:
        for listen in wanted:
            if listen.key in result:
                continue
            if listen.key in kept:
                result[listen.key] = kept[listen.key]
                continue
            result[listen.key] = _open(listen, log, patient=patient)
            fresh.append(result[listen.key])
    except BaseException:
        close_all(fresh)
        raise
    return result


def _open(listen: Listen, log: EngineLog, *, patient: bool) -> socket.socket:
    for attempt in range(_ATTEMPTS):
        try:
            return listen.open()
        except (OSError, Error) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            text = f"bind() to {listen.key} failed {system_text(error)}" if isinstance(error, OSError) else str(error)
            in_use = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            if not in_use or not patient or attempt == _ATTEMPTS - 1:
                raise Error(text, kind="listen") from error
            log.write("error", f"{text}; trying again in {_PAUSE * 1000:g} ms")
            time.sleep(_PAUSE)
    raise AssertionError("unreachable")


def close_all(sockets: Iterable[socket.socket]) -> None:
    """Close listeners for good, and remove the files of unix sockets."""
    for sock in sockets:
        if sock.fileno() >= 0:
            remove_unix(sock)
            sock.close()
