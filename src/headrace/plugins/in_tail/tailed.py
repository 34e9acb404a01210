"""One file that is followed, and where its bytes stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.core.clock import Deadline
    from headrace.pipeline.event import Batch
    from headrace.plugins.in_tail.groups import Quota
    from headrace.plugins.in_tail.lines import LineSplitter
    from headrace.plugins.in_tail.positions import Slot
    from headrace.plugins.parser_multiline import Assembler

WITNESS: Final = 32
"""Bytes before the place of reading that are remembered: if they are others the next time, the file began anew."""
_DOTS: Final = re.compile(r"\.{2,}")


def tag_of(path: str) -> str:
    """What `*` in a tag stands for (docs.fluentd.org, Input Plugins, tail)."""
    return _DOTS.sub(".", path.replace("/", ".")).removeprefix(".")


class Tailed:
    """A file by its identity (device, inode).

    path: under which it is followed. name: where it lies now (the path, or what a rotation made of it).
    read: how far it was read. offset: how far what was read is in the buffers; this is what the position file has.
    text_at: where a multiline text begins of which more may come, None when there is none.
    pending: a batch that is not in the buffers yet, and the offset when it is.
    """

    __slots__ = (
        "assembler",
        "busy",
        "closed",
        "delay",
        "drained",
        "ended",
        "final",
        "flush_timer",
        "follower",
        "held_back",
        "identity",
        "modified",
        "name",
        "offset",
        "path",
        "pending",
        "polled",
        "queued",
        "quota",
        "read",
        "rotated_at",
        "slot",
        "splitter",
        "tag",
        "text_at",
        "timer",
        "wait_timer",
        "watch",
        "witness",
    )

    def __init__(
        self,
        path: str,
        identity: tuple[int, int],
        offset: int,
        splitter: LineSplitter,
        assembler: Assembler | None = None,
    ) -> None:
        self.path = path
        self.name = path
        self.identity = identity
        self.offset = offset
        self.read = offset
        self.splitter = splitter
        self.assembler = assembler
        self.text_at: int | None = None
        self.witness = b""
        self.modified = 0
        """When it was modified (ns), at the last look."""
        self.tag = ""
        self.slot: Slot | None = None
        self.quota: Quota | None = None
        self.pending: tuple[Batch, int] | None = None
        self.busy = False
        """Somebody waits until `pending` is taken."""
        self.queued = False
        self.ended = False
        """The last read met the end of the file."""
        self.delay = 0.0
        """Seconds of the last wait for room in the buffers."""
        self.timer: Deadline | None = None
        """It is not its turn before this."""
        self.flush_timer: Deadline | None = None
        self.wait_timer: Deadline | None = None
        self.rotated_at: float | None = None
        """When its path was found to lead elsewhere, None while it leads here."""
        self.drained = False
        """It was read to its end since then."""
        self.final = False
        """Nothing more is read: it goes when what is pending is taken."""
        self.closed = False
        self.held_back = False
        """It is not read before the file that had its path is."""
        self.follower: Tailed | None = None
        self.watch = -1
        """Number of its inotify watch while that is armed."""
        self.polled = False
        """inotify does not tell of it: it is looked at every second."""

    @property
    def boundary(self) -> int:
        """Where the last whole line ends that was read."""
        return self.read - self.splitter.held

    @property
    def idle(self) -> bool:
        """Nothing of it is under way."""
        return not (self.queued or self.busy or self.pending or self.timer or self.held_back or self.final)

    def advance(self, data: bytes, used: int) -> None:
        """Note that the first `used` bytes of `data` were read."""
        self.read += used
        if used >= WITNESS:
            self.witness = data[used - WITNESS : used]
        else:
            self.witness = (self.witness + data[:used])[-WITNESS:]

    def restart(self) -> None:
        """Read the file from its beginning: it is another one, under the same identity."""
        self.splitter.reset()
        self.read = 0
        self.witness = b""
        self.text_at = None

    def cancel_timers(self) -> None:
        """Nothing is to happen later."""
        for timer in (self.timer, self.flush_timer, self.wait_timer):
            if timer is not None:
                timer.cancel()
        self.timer = self.flush_timer = self.wait_timer = None
