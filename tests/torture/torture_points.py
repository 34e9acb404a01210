"""Named points at which a node kills itself: `install(name, nth)` in its process, nothing in production.

A point is a function of headrace by its name in the code, and the moment of its call: before it, after it,
or, for writes, when half of the bytes have been written.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import os
import signal

_PIPELINE = "headrace.pipeline."

POINTS = {
    "a batch arrives": ("intake:Intake.emit", "before"),
    "a batch is in its chunk, not yet answered": ("intake:Intake.emit", "after"),
    "a segment is made": ("files:Files.create", "before"),
    "a segment is made and empty": ("files:Files.create", "after"),
    "its name is not synced": ("files:Files.sync_dir", "before"),
    "its name is synced": ("files:Files.sync_dir", "after"),
    "a record is written": ("files:Files.append", "before"),
    "half a record is written": ("files:Files.append", "half"),
    "a torn record is found": ("recovery:Recovery._repair", "before"),
    "half a record is written again": ("files:Files.append", "half"),
    "a torn record is cut off": ("files:Files.truncate_path", "after"),
    "a record is in the kernel": ("files:Files.append", "after"),
    "the disk is asked": ("files:Files.sync", "before"),
    "the disk has it": ("files:Files.sync", "after"),
    "the sync is noted": ("journal:Journal.note_synced", "after"),
    "a chunk is sealed": ("filestore:FileStore.seal", "after"),
    "a chunk is queued": ("buffer:Buffer.seal", "after"),
    "a lane takes a chunk": ("delivery:Delivery._deliver", "before"),
    "a chunk is read": ("filestore:FileStore.read", "after"),
    "a chunk is delivered, not yet noted": ("delivery:Delivery._succeeded", "before"),
    "its end is noted": ("journal:Journal.purge", "after"),
    "its end is forgotten": ("journal:Journal.write_pending", "before"),
    "garbage is looked for": ("journal:Journal.collect", "before"),
    "a segment is removed": ("files:Files.unlink", "before"),
    "a segment is gone": ("files:Files.unlink", "after"),
    "a slot is locked": ("files:Files.lock", "after"),
    "a journal is read": ("recovery:Recovery.steps", "before"),
    "a segment is read": ("recovery:Recovery._read", "after"),
    "a journal was read": ("journal:Journal.measure", "after"),
    "what was left is queued": ("buffer:Buffer.restore", "after"),
    "pieces are moved": ("journal:Journal._move", "before"),
    "pieces were moved": ("journal:Journal._move", "after"),
}
"""Name -> (function, moment). In this order each finds what it needs: a torn record was left before it is found."""

RARE = {
    "a segment is made", "a segment is made and empty", "its name is not synced", "its name is synced",
    "a torn record is found", "a torn record is cut off", "a slot is locked", "a journal is read",
    "a segment is read", "a journal was read", "what was left is queued", "a segment is removed",
    "a segment is gone", "pieces are moved", "pieces were moved", "the disk is asked", "the disk has it",
    "the sync is noted",
}  # fmt: skip
"""Points that a node passes few times: it dies at the first."""

PINNED = {"pieces are moved", "pieces were moved"}
"""Points that need a chunk which stays while others come and go."""


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def resolve(name):
    """The class and the method's name of a point."""
    module, _, path = POINTS[name][0].partition(":")
    owner, _, method = path.partition(".")
    return getattr(importlib.import_module(_PIPELINE + module), owner), method


def install(name, nth):
    """Kill this process when the point is passed for the nth time."""
    cls, method = resolve(name)
    original = getattr(cls, method)
    assert POINTS[name][1] == "before" or not inspect.iscoroutinefunction(original)
    moment = POINTS[name][1]
    count = itertools.count(1)

    @functools.wraps(original)
    def passing(*args, **more):
        now = next(count) == nth
        if now and moment == "half":
            original(args[0], args[1], memoryview(args[2])[: len(args[2]) // 2])
        if now and moment != "after":
            die()
        result = original(*args, **more)
        if now:
            die()
        return result

    setattr(cls, method, passing)
