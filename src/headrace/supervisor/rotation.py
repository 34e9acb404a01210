"""The engine's log begins anew when it is too large or a period is over (fluentd --log-rotate-age, --log-rotate-size).

As Ruby's Logger does it for Fluentd: by size, `log` becomes `log.0`, `log.0` becomes `log.1`, and so on; by period, the
name gets the last day of the period, `log.20260131`. Only the master renames. Every process then sees that the file
under the name is another one, and opens it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

PERIODS: Final = ("daily", "weekly", "monthly")
KEEP: Final = 7
SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Rotation:
    """size: bytes of a full file. keep: files in all, the one written to included.

    period: of PERIODS; size and keep then mean nothing. Weeks begin on Sunday.
    """

    keep: int = KEEP
    size: int = SIZE
    period: str | None = None


class Rotator:
    """Rotates one file."""

    def __init__(self, path: str, rotation: Rotation) -> None:
        self._path = path
        self._rotation = rotation
        self._begin: date | None = None

    def due(self, fd: int, now: float) -> bool:
        """Whether the file is full, or from a period that is over; an empty one never is."""
        facts = os.fstat(fd)
        period = self._rotation.period
        if period is None:
            return facts.st_size > self._rotation.size
        this = begin_of(period, day_of(now))
        if self._begin is None:
            self._begin = begin_of(period, day_of(facts.st_mtime)) if facts.st_size else this
        if facts.st_size == 0:
            self._begin = this
        return this > self._begin

    def shift(self, fd: int, now: float) -> None:
        """Move the file away, unless another process has. Raises OSError."""
        lock = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not same_file(lock, fd) or moved(self._path, lock):
                return
            if self._rotation.period is None:
                self._shift_numbers()
            else:
                last = begin_of(self._rotation.period, day_of(now)) - timedelta(days=1)
                Path(self._path).rename(_free(f"{self._path}.{last:%Y%m%d}"))
                self._begin = None
        finally:
            os.close(lock)

    def _shift_numbers(self) -> None:
        for number in range(self._rotation.keep - 3, -1, -1):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._path}.{number}").replace(f"{self._path}.{number + 1}")
        Path(self._path).replace(f"{self._path}.0")


def _free(name: str) -> str:
    """The name, or with a number when a file has it already."""
    if not os.path.lexists(name):
        return name
    number = 1
    while os.path.lexists(f"{name}.{number}"):
        number += 1
    return f"{name}.{number}"


def day_of(moment: float) -> date:
    """The day of a time in seconds since the epoch, here."""
    return datetime(*time.localtime(moment)[:3]).date()  # noqa: DTZ001 - a day has no zone


def begin_of(period: str, day: date) -> date:
    """The first day of the period that a day is in."""
    if period == "daily":
        return day
    if period == "weekly":
        return day - timedelta(days=day.isoweekday() % 7)
    return day.replace(day=1)


def same_file(one: int, other: int) -> bool:
    """Whether two descriptors are of one file."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def moved(path: str, fd: int) -> bool:
    """Whether the file under the name is not that of the descriptor."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return True
