"""The run folder: `BASE/MASTER-PID/`, mode 0700, with a socket per worker and `master.json`.

BASE is $HEADRACE_RUN_DIR, else /run/headrace for root, else $XDG_RUNTIME_DIR/headrace, else
/tmp/headrace-UID. Folders of masters that are gone are removed when another one starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any, Final

from headrace.errors import Error

VARIABLE: Final = "HEADRACE_RUN_DIR"
_SOCKET_PATH_MAX: Final = 107  # bytes of sun_path without its final zero


def base() -> Path:
    """The folder that holds the run folders of this user."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    if os.geteuid() == 0:
        return Path("/run/headrace")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "headrace"
    return Path("/tmp") / f"headrace-{os.geteuid()}"  # noqa: S108 - RunDir checks whose it is


class RunDir:
    """The run folder of this master. An unusable place costs the figures, never the service: see `problem`."""

    def __init__(self, pid: int) -> None:
        self.path = base() / str(pid)
        self.problem: str | None = None
        try:
            top = self.path.parent
            top.mkdir(mode=0o755, parents=True, exist_ok=True)
            facts = top.lstat()
            if facts.st_uid not in {os.geteuid(), 0} or stat.S_ISLNK(facts.st_mode):
                raise PermissionError(f"{top} belongs to another user or is a link")
            sweep()
            self.path.mkdir(mode=0o700, exist_ok=True)
            if len(os.fsencode(self.path / "worker-1023-4194304.sock")) > _SOCKET_PATH_MAX:
                raise OSError("the path is too long for a unix socket")
        except OSError as error:
            self.problem = f"no figures for `headrace stats`: {self.path}: {error}"

    def socket(self, index: int, pid: int) -> str | None:
        """Where a worker serves its figures."""
        return None if self.problem else str(self.path / f"worker-{index}-{pid}.sock")

    def note(self, facts: dict[str, Any]) -> None:
        """Write what `headrace stats` says about the master."""
        if self.problem:
            return
        with contextlib.suppress(OSError):
            fresh = self.path / "master.json.new"
            fresh.write_text(json.dumps(facts), encoding="utf-8")
            fresh.replace(self.path / "master.json")

    def worker_ended(self, index: int, pid: int) -> None:
        """Remove what a worker that was killed left behind."""
        name = self.socket(index, pid)
        if name:
            with contextlib.suppress(OSError):
                Path(name).unlink()

    def give_to(self, uid: int, gid: int) -> None:
        """Workers under another user write their dumps and remove their sockets here."""
        if not self.problem:
            with contextlib.suppress(OSError):
                os.chown(self.path, uid, gid)

    def remove(self) -> None:
        """At the end of the master."""
        if not self.problem:
            shutil.rmtree(self.path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def masters() -> list[int]:
    """Pids of the running masters of this user."""
    folder = base()
    if not folder.is_dir():
        return []
    pids = (int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    return sorted(pid for pid in pids if _alive(pid))


def sweep() -> None:
    """Remove the folders of masters that are gone."""
    for entry in base().iterdir():
        if entry.name.isdigit() and not _alive(int(entry.name)):
            shutil.rmtree(entry, ignore_errors=True)


def find_all(pid: int | None) -> list[Path]:
    """The run folder of `pid`, or those of all running masters; Error when there is none."""
    running = masters()
    if pid is None:
        if not running:
            raise Error(f"no headrace is running (looked in {base()}; {VARIABLE} changes that)", kind="not_running")
        return [base() / str(each) for each in running]
    folder = base() / str(pid)
    if pid not in running or not folder.is_dir():
        raise Error(f"no headrace with pid {pid} is running (looked in {base()})", kind="not_running")
    return [folder]


def find(pid: int | None) -> Path:
    """The run folder of `pid`, or of the only running master; Error when there is no such, or a choice."""
    found = find_all(pid)
    if len(found) > 1:
        names = " ".join(folder.name for folder in found)
        raise Error(f"several masters are running, name one: {names}", kind="choice")
    return found[0]
