"""Logs to syslog: a datagram for each line (RFC 3164), over UDP or a unix socket.

https://nginx.org/en/docs/syslog.html
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge.log import LogFile
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.errors import Place

FACILITIES: Final = (
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp", "ntp",
    "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
SEVERITIES: Final = ("emerg", "alert", "crit", "error", "warn", "notice", "info", "debug")
PORT: Final = 514


@dataclass(frozen=True)
class SyslogSettings:
    """What follows `syslog:`. server: (host, port) or the path of a unix socket."""

    server: tuple[str, int] | str
    facility: int = 23
    severity: int = 6
    tag: str = "nginx"
    hostname: bool = True


def parse_syslog(text: str, place: Place | None) -> SyslogSettings:
    """The settings of `syslog:server=...,facility=...`. Raises ConfError as nginx words it."""
    values: dict[str, str] = {}
    hostname = True
    for word in text.removeprefix("syslog:").split(","):
        name, equals, value = word.partition("=")
        if word == "nohostname":
            hostname = False
        elif name not in ("server", "facility", "severity", "tag") or not equals:
            raise ConfError(f'unknown syslog parameter "{word}"', place)
        elif name in values:
            raise ConfError(f'duplicate syslog "{name}"', place)
        else:
            values[name] = value
    if not values.get("server"):
        raise ConfError("no syslog server specified", place)
    facility, severity, tag = (
        values.get("facility", "local7"),
        values.get("severity", "info"),
        values.get("tag", "nginx"),
    )
    if facility not in FACILITIES:
        raise ConfError(f'unknown syslog facility "{facility}"', place)
    if severity not in SEVERITIES:
        raise ConfError(f'unknown syslog severity "{severity}"', place)
    if len(tag) > 32:
        raise ConfError("syslog tag length exceeds 32", place)
    if not re.fullmatch(r"[A-Za-z0-9_]+", tag):
        raise ConfError('syslog "tag" only allows alphanumeric characters and underscore', place)
    address = _address(values["server"], place)
    return SyslogSettings(address, FACILITIES.index(facility), SEVERITIES.index(severity), tag, hostname)


def _address(text: str, place: Place | None) -> tuple[str, int] | str:
    if text.startswith("unix:"):
        return text[5:]
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:]+)(?::([0-9]+))?", text)
    if match is None or (match.group(2) and not 0 < int(match.group(2)) < 65536):
        raise ConfError(f'invalid port in syslog server "{text}"', place)
    return match.group(1).strip("[]"), int(match.group(2) or PORT)


class SyslogLog(LogFile):
    """A log target whose lines are datagrams. One that cannot be sent is lost; the next one tries anew."""

    def __init__(self, settings: SyslogSettings) -> None:
        super().__init__("syslog")
        self.settings = settings
        self._socket: socket.socket | None = None
        self._hostname = socket.gethostname()

    def open(self) -> None:
        """Nothing is opened before there is something to send."""

    def check(self) -> None:
        """Datagrams can be sent to anybody."""

    def reopen(self) -> None:
        """Connect anew with the next line."""
        self.close()

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def write(self, data: bytes) -> None:
        """Send a line at the severity of the settings."""
        self._send(self.settings.severity, data)

    def write_at(self, level: int, data: bytes) -> None:
        """Send a line of an error log at the severity of its level."""
        self._send(max(level - 1, 0), data)

    def _send(self, severity: int, data: bytes) -> None:
        settings = self.settings
        host = f"{self._hostname} " if settings.hostname else ""
        at = time.strftime("%b %e %H:%M:%S")
        head = f"<{settings.facility * 8 + severity}>{at} {host}{settings.tag}: "
        with contextlib.suppress(OSError):
            try:
                self._connected().send(head.encode() + data.removesuffix(b"\n"))
            except OSError:
                self.close()
                self._connected().send(head.encode() + data.removesuffix(b"\n"))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            server = self.settings.server
            if isinstance(server, str):
                made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                address: tuple[str, int] | str = server
            else:
                family, kind, protocol, _, found = socket.getaddrinfo(*server, type=socket.SOCK_DGRAM)[0]
                made = socket.socket(family, kind, protocol)
                address = (str(found[0]), int(found[1]))
            made.setblocking(False)
            try:
                made.connect(address)
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket
