"""Texts of the present time, made at most once a second: headers and logs ask for them on every request."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from typing import Final

_cached: Final[dict[str, bytes]] = {}
_second: int = 0


def _fresh() -> int:
    global _second  # noqa: PLW0603 - one cache a process: that is the purpose
    now = int(time.time())
    if now != _second:
        _second = now
        _cached.clear()
    return now


def http_date(at: float | None = None) -> bytes:
    """A date as headers carry it (RFC 9110 5.6.7); at: seconds since the epoch, default now."""
    if at is not None:
        return _date_of(int(at))
    now = _fresh()
    text = _cached.get("http")
    if text is None:
        text = _cached["http"] = formatdate(now, usegmt=True).encode()
    return text


@lru_cache(maxsize=1024)
def _date_of(at: int) -> bytes:
    return formatdate(at, usegmt=True).encode()


def local_time() -> bytes:
    """`$time_local`: 28/Sep/2026:12:00:00 +0600."""
    now = _fresh()
    text = _cached.get("local")
    if text is None:
        at = time.localtime(now)
        month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[at.tm_mon - 1]
        text = _cached["local"] = time.strftime(f"%d/{month}/%Y:%H:%M:%S %z", at).encode()
    return text


def iso8601() -> bytes:
    """`$time_iso8601`: 2026-09-28T12:00:00+06:00."""
    now = _fresh()
    text = _cached.get("iso")
    if text is None:
        zone = time.strftime("%z", time.localtime(now))
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)).encode() + f"{zone[:3]}:{zone[3:]}".encode()
        _cached["iso"] = text
    return text


def log_time() -> bytes:
    """The time at the head of an error log line: 2026/09/28 12:00:00."""
    now = _fresh()
    text = _cached.get("log")
    if text is None:
        text = _cached["log"] = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)).encode()
    return text
