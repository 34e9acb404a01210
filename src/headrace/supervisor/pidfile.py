"""The pid file, and the signals that `-s` sends through it. The texts are those nginx prints."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import Error

if TYPE_CHECKING:
    from headrace.supervisor.program import ProcessSettings

OLD: Final = ".oldbin"
"""What nginx puts behind the name of the pid file of a master whose place a new one takes."""

SIGNALS: Final = {
    "stop": signal.SIGTERM,
    "quit": signal.SIGQUIT,
    "reload": signal.SIGHUP,
    "reopen": signal.SIGUSR1,
}
"""What -s understands: nginx, Beginner's Guide, "Starting, Stopping, and Reloading Configuration"."""


def system_text(error: OSError) -> str:
    """An error of the system as nginx prints it: `(2: No such file or directory)`."""
    return f"({error.errno}: {os.strerror(error.errno or 0)})"


def make_folder(path: str, prefix: str | None) -> None:
    """Make the folder of the file `path` when it is missing and lies below `prefix`.

    Raises Error that names the folder and says why it could not be made. A missing folder elsewhere is
    left to the one who opens the file.
    """
    folder = Path(path).parent
    if folder.is_dir() or prefix is None:
        return
    if not folder.is_relative_to(prefix):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f'mkdir() "{folder}" failed {system_text(error)}', kind="folder") from error


def write(path: str, pid: int, prefix: str | None = None) -> None:
    """Write the pid file; Error when that is not possible."""
    make_folder(path, prefix)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Error(f'open() "{path}" failed {system_text(error)}', kind="pid_file") from error
    try:
        os.write(fd, b"%d\n" % pid)
    finally:
        os.close(fd)


def remove(path: str, pid: int) -> None:
    """Remove the pid file if it is still that of `pid`."""
    with contextlib.suppress(OSError, Error):
        if read(path) == pid:
            Path(path).unlink()


def read(path: str) -> int:
    """The pid in the file; Error as nginx words it."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise Error(f'open() "{path}" failed {system_text(error)}', kind="pid_file") from error
    digits = text.rstrip(b"\r\n")
    if not digits.isdigit() or int(digits) == 0:
        shown = digits.decode("utf-8", "replace")
        raise Error(f'invalid PID number "{shown}" in "{path}"', kind="pid_file")
    return int(digits)


def send(path: str, command: str) -> None:
    """Send the signal of `-s command` to the process in the pid file; Error when there is none."""
    pid = read(path)
    try:
        os.kill(pid, SIGNALS[command])
    except OSError as error:
        raise Error(f"kill({pid}, {SIGNALS[command]:d}) failed {system_text(error)}", kind="no_process") from error


class PidFile:
    """The pid file of a running master. pid: whose it is."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self.path: str | None = None
        self._pid = pid

    def write(self, settings: ProcessSettings) -> None:
        """Write it where the settings say, and remove it where it was before. Raises Error."""
        path = settings.pid_file
        if path == self.path:
            return
        if path is not None:
            write(path, self._pid(), settings.prefix)
        self.remove()
        self.path = path

    def step_aside(self) -> None:
        """Leave its name to a new master, as nginx does. Raises Error."""
        self._rename(OLD)

    def step_back(self) -> None:
        """Take its name again. Raises Error."""
        if self.path is not None and self.path.endswith(OLD):
            self._rename("")

    def _rename(self, suffix: str) -> None:
        if self.path is None:
            return
        path = self.path.removesuffix(OLD) + suffix
        try:
            os.rename(self.path, path)
        except OSError as error:
            raise Error(f'rename() "{self.path}" to "{path}" failed {system_text(error)}', kind="pid_file") from error
        self.path = path

    def remove(self) -> None:
        """Remove it, if it is still ours."""
        if self.path is not None:
            remove(self.path, self._pid())
            self.path = None
