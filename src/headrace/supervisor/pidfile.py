"""The pid file, and the signals that `-s` sends through it. The texts are those nginx prints."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from headrace.errors import Error

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
