"""The engine's own log lines.

Two forms: Fluentd's (`2026-01-02 03:04:05 +0000 [info]: #0 message`, the number is the worker's and the
master has none) and nginx's (`2026/01/02 03:04:05 [notice] 12#12: message`). Lines go out by one write
each, so that processes which share a file do not mix theirs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace.supervisor.rotation import Rotation, Rotator, moved, same_file

Now = Callable[[], float]

LEVELS: Final = ("trace", "debug", "info", "warn", "error", "fatal")
"""Fluentd's levels, the least important first."""

_REMEMBERED: Final = 1000
"""Lines that are remembered to find equal ones."""

_PLUGINS: Final = "headrace.pipeline."
"""What stands before a plugin's id in the name of its logger."""

_NGINX_LEVEL: Final = {
    "trace": "debug",
    "debug": "debug",
    "info": "notice",
    "warn": "warn",
    "error": "error",
    "alert": "alert",
    "fatal": "emerg",
}


class EngineLog(Protocol):
    """Where master and workers tell what they do. level: one of LEVELS."""

    def write(self, level: str, message: str) -> None:
        """One line."""
        ...

    def reopen(self, owner: tuple[int, int] | None = None) -> None:
        """Open the file anew, after it was moved away; owner: (uid, gid) it must belong to."""
        ...

    def set_worker(self, index: int) -> None:
        """From now on the lines are those of this worker."""
        ...

    def tend(self, *, rotate: bool, owner: tuple[int, int] | None = None) -> None:
        """Called about once a second: begin the file anew when it is time (rotate), follow one that was moved."""
        ...


class _FileLog:
    """A log on standard output or a file. A message under `level` is dropped. rotation: of a file."""

    def __init__(
        self,
        path: str | None = None,
        *,
        level: str = "info",
        now: Now = time.time,
        fd: int = 1,
        rotation: Rotation | None = None,
    ) -> None:
        self._path = path
        self._rotator = Rotator(path, rotation) if path and rotation else None
        self._threshold = LEVELS.index(level)
        self._now = now
        self._worker: int | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644) if path else fd

    @property
    def fd(self) -> int:
        """The descriptor lines go to."""
        return self._fd

    def set_level(self, level: str) -> None:
        """Drop messages under `level` from now on."""
        self._threshold = LEVELS.index(level)

    def write(self, level: str, message: str) -> None:
        if LEVELS.index(level) < self._threshold or self._fd < 0:
            return
        if self._fd <= 2:
            with contextlib.suppress(OSError, ValueError):
                (sys.stderr if self._fd == 2 else sys.stdout).flush()
        with contextlib.suppress(OSError):  # a full disk or a closed pipe must not end the process
            os.write(self._fd, self._line(level, message).encode("utf-8", "surrogateescape"))

    def _line(self, level: str, message: str) -> str:
        raise NotImplementedError

    def reopen(self, owner: tuple[int, int] | None = None) -> None:
        if self._path is None or self._fd < 0:
            return
        fresh = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if owner is not None:
            os.fchown(fresh, *owner)
        for standard in (1, 2):  # a daemon's are the log
            with contextlib.suppress(OSError):
                if same_file(standard, self._fd):
                    os.dup2(fresh, standard)
        os.dup2(fresh, self._fd, inheritable=False)
        os.close(fresh)

    def tend(self, *, rotate: bool, owner: tuple[int, int] | None = None) -> None:
        if self._rotator is None or self._path is None or self._fd < 0:
            return
        with contextlib.suppress(OSError):  # a folder that is closed to us: the file grows on
            now = self._now()
            if rotate and self._rotator.due(self._fd, now):
                self._rotator.shift(self._fd, now)
            if moved(self._path, self._fd):
                self.reopen(owner)

    def set_worker(self, index: int) -> None:
        self._worker = index

    def close(self) -> None:
        """Write no more; a file is closed, a standard stream is not."""
        if self._path is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def fluent_stamp(now: float) -> str:
    """Fluentd's default form of a time."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))


@dataclass(frozen=True, slots=True)
class Style:
    """How a Fluentd log looks, and what it leaves out (<system> and its <log> section).

    json: a JSON object a line. stamp: the form of times. repeated, same: seconds in which a line equal to the last
    one, or to any of the last 1,000, is left out. first_trace_only: of equal stack traces in a row the first is
    written. trace_level: of all stack traces; None: that of their message.
    """

    json: bool = False
    stamp: Callable[[float], str] = fluent_stamp
    repeated: float | None = None
    same: float | None = None
    first_trace_only: bool = True
    trace_level: str | None = None


class FluentLog(_FileLog):
    """Lines in Fluentd's form."""

    def __init__(self, path: str | None = None, **options: Any) -> None:
        super().__init__(path, **options)
        self._style = Style()
        self._seen: dict[str, float] = {}
        self._last_trace = ""

    def set_style(self, style: Style) -> None:
        """Write in another form from now on."""
        self._style = style

    def begin_file(self, path: str) -> None:
        """Write to a file from now on, and no more to a standard stream. Raises OSError."""
        if self._path is None:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._path = path

    def rotate(self, rotation: Rotation) -> None:
        """Begin the file anew as `rotation` says, unless that was told already."""
        if self._path is not None and self._rotator is None:
            self._rotator = Rotator(self._path, rotation)

    def write(self, level: str, message: str) -> None:
        """One line, unless it repeats another."""
        if LEVELS.index(level) >= self._threshold and not self._repeats(message):
            super().write(level, message)

    def write_trace(self, level: str, trace: str) -> None:
        """The stack trace that belongs to the line before."""
        style = self._style
        level = style.trace_level or level
        if LEVELS.index(level) < self._threshold:
            return
        if style.first_trace_only and trace == self._last_trace:
            trace = "suppressed same stacktrace"
        else:
            self._last_trace = trace
        if style.json:
            super().write(level, trace)
        else:
            super().write(level, "\n".join(f"  {line}" for line in trace.splitlines()))

    def _repeats(self, message: str) -> bool:
        """Whether a line is to be left out; remembers it else."""
        style, seen, now = self._style, self._seen, self._now()
        within = style.same if style.same is not None else style.repeated
        if within is None:
            return False
        before = seen.get(message)
        if before is not None and now - before <= within:
            return True
        if style.same is None or len(seen) >= _REMEMBERED:
            seen.clear()
        seen[message] = now
        return False

    def _line(self, level: str, message: str) -> str:
        stamp = self._style.stamp(self._now())
        if self._style.json:
            line: dict[str, Any] = {"time": stamp, "level": level, "message": message}
            if self._worker is not None:
                line["worker_id"] = self._worker
            return json.dumps(line, ensure_ascii=False) + "\n"
        worker = "" if self._worker is None else f"#{self._worker} "
        return f"{stamp} [{level}]: {worker}{message}\n"


class NginxLog(_FileLog):
    """Lines in nginx's form; its notice is our info, and it has one level more: alert."""

    def write(self, level: str, message: str) -> None:
        """One line; level: one of LEVELS, or "alert", which is always written."""
        if level != "alert":
            super().write(level, message)
        elif self._fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._fd, self._line(level, message).encode("utf-8", "surrogateescape"))

    def _line(self, level: str, message: str) -> str:
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(self._now()))
        pid = os.getpid()
        return f"{stamp} [{_NGINX_LEVEL[level]}] {pid}#{pid}: {message}\n"


class LogHandler(logging.Handler):
    """Carries records of Python's logging, the pipeline's and the plugins', into an engine log.

    Lines of a plugin begin with its id in brackets.
    """

    def __init__(self, log: EngineLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record, with its traceback when it has one."""
        trace = ""
        try:
            text = record.getMessage()
            if record.exc_info:
                trace = logging.Formatter().formatException(record.exc_info)
        except Exception:  # noqa: BLE001 - a message that cannot be formatted must not end who logs it
            text = str(record.msg)
        level = _level_name(record.levelno)
        if record.name.startswith(_PLUGINS):  # as Fluentd does it
            text = f"[{record.name.removeprefix(_PLUGINS)}] {text}"
        if trace and not isinstance(self._log, FluentLog):
            text += f"\n{trace}"
        self._log.write(level, text)
        if trace and isinstance(self._log, FluentLog):
            self._log.write_trace(level, trace)


def _level_name(number: int) -> str:
    for least, name in ((50, "fatal"), (40, "error"), (30, "warn"), (20, "info"), (10, "debug")):
        if number >= least:
            return name
    return "trace"
