"""What the operating system is asked for: users and limits, sessions, the death of a parent, memory."""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import Error

if TYPE_CHECKING:
    from headrace.supervisor.program import ProcessSettings

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT: Final = 16 << 20


def keep_freed_memory() -> None:
    """Let the allocator keep some megabytes instead of giving them back at once (mallopt(3)).

    Who takes in messages of some hundred kilobytes frees and needs as much all the time: a fifth of its time would
    go into pages that the kernel takes and clears. Does nothing where the C library is not glibc.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _KEPT)


@dataclass(frozen=True, slots=True)
class Account:
    """Who workers become. groups: the supplementary groups of the user."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    @property
    def owner(self) -> tuple[int, int]:
        """What a file of theirs belongs to."""
        return self.uid, self.gid


def account(user: str | None, group: str | None = None) -> Account | None:
    """Look up names or numbers; None when the process is not root or neither is given.

    Raises Error with nginx's text when there is no such user or group.
    """
    if os.geteuid() != 0 or (user is None and group is None):
        return None
    if user is None:
        entry = pwd.getpwuid(os.geteuid())
    else:
        try:
            entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
        except KeyError:
            raise Error(f'getpwnam("{user}") failed', kind="user") from None
    gid = entry.pw_gid
    if group is not None:
        try:
            gid = (grp.getgrgid(int(group)) if group.isdigit() else grp.getgrnam(group)).gr_gid
        except KeyError:
            raise Error(f'getgrnam("{group}") failed', kind="user") from None
    return Account(entry.pw_name, entry.pw_uid, gid, tuple(os.getgrouplist(entry.pw_name, gid)))


def may_enter(who: Account, folder: str) -> bool:
    """Whether an account can list `folder` and reach it through its parents."""
    path = Path(folder).resolve()
    for step in (path, *path.parents):
        try:
            status = step.stat()
        except OSError:
            return False
        shift = 6 if status.st_uid == who.uid else 3 if status.st_gid in {who.gid, *who.groups} else 0
        wanted = 0o5 if step == path else 0o1
        if who.uid != 0 and status.st_mode >> shift & wanted != wanted:
            return False
    return True


def become(who: Account | None) -> None:
    """Drop root's privileges for good, in a worker."""
    if who is None or (who.uid == 0 and who.gid == os.getegid()):
        return
    os.setgroups(who.groups)
    os.setgid(who.gid)
    os.setuid(who.uid)


def settle(settings: ProcessSettings) -> None:
    """Apply what a configuration says about its workers, while they are still root. Raises OSError."""
    if settings.priority is not None:
        os.setpriority(os.PRIO_PROCESS, 0, settings.priority)
    if settings.rlimit_core is not None:
        _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        top = max(hard, settings.rlimit_core) if os.geteuid() == 0 and hard != resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_CORE, (settings.rlimit_core, top))
    if settings.directory is not None:
        os.chdir(settings.directory)
    if settings.environment is not None:
        wanted = dict(settings.environment)
        for name in [name for name in os.environ if name not in wanted]:
            del os.environ[name]
        os.environ.update(wanted)


def raise_descriptor_limit(wanted: int | None = None) -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one, or to `wanted` (root may raise the hard limit too).

    Returns (soft, hard). Raises OSError or ValueError only for a `wanted` that is not allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted) if os.geteuid() == 0 else hard))
    elif soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask the kernel for a signal when the parent ends; to be called after setuid, which clears it."""
    _prctl(_PR_SET_PDEATHSIG, int(number))


def set_name(name: str) -> None:
    """The name that ps and top show for the thread (15 bytes)."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def _prctl(option: int, argument: object) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the pipe to the master still tells of its end
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def unblock_signals() -> None:
    """Whoever started us may have blocked some."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process, in bytes; 0 when it cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def flush_standard_streams() -> None:
    """Before a fork or _exit, so that nothing is printed twice or lost."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


class Daemon:
    """A process put into the background, whose starter waits until it is ready.

    `Daemon.detach()` returns in the background process only; the starter stays in it until `ready()` or the
    end of the background process, and exits with 0 or 1.
    """

    def __init__(self, report: int) -> None:
        self.fd = report

    @classmethod
    def detach(cls, *, output: int | None, errors: int | None) -> Daemon:
        """Fork twice with a new session between.

        output, errors: the descriptors that standard output and error are from now on; None is /dev/null.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        flush_standard_streams()
        child = os.fork()
        if child:
            os.close(write)
            os.waitpid(child, 0)
            os._exit(0 if os.read(read, 1) == b"R" else 1)
        os.close(read)
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null if errors is None else errors, 2)
        os.dup2(null if output is None else output, 1)
        os.close(null)
        return cls(write)

    def ready(self) -> None:
        """Let the starter go."""
        if self.fd >= 0:
            os.write(self.fd, b"R")
            self.close()

    def close(self) -> None:
        """Without ready(): the starter will report a failure, unless another process holds the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
