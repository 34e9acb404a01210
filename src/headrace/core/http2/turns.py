"""The turns of the streams: who may put bytes into the connection, and how many.

Streams that have bytes stand in a row; each puts in one piece and goes to its end. Bytes leave a stream only while the
connection's own chain is short, so a client that does not read holds its streams back, and the loop is not held.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.core.http2.frames import DATA, DEFAULT_WINDOW, END_STREAM, FRAME_SIZE, INTERNAL_ERROR, MAX_WINDOW, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.http2.stream import Http2Stream
    from headrace.core.stream import Stream

LOW = 65_536
"""Bytes in the connection's chain up to which streams add theirs."""


class Turns:
    """The row. window: bytes that the client takes on all streams together. frame_size: in one frame.

    rested: called when the last stream is gone, after what it left has been written.
    """

    __slots__ = (
        "_emptied",
        "_out",
        "_rested",
        "_row",
        "_running",
        "_waiting",
        "corked",
        "frame_size",
        "stream",
        "window",
    )

    def __init__(self, stream: Stream, rested: Callable[[], None]) -> None:
        self.stream = stream
        self._rested = rested
        self._emptied = False
        self.window = DEFAULT_WINDOW
        self.frame_size = FRAME_SIZE
        self.corked = False  # somebody will call run()
        self._row: deque[Http2Stream] = deque()
        self._out: list[bytes] = []
        self._running = False
        self._waiting = False  # for the connection's chain

    def add(self, data: bytes) -> None:
        """Frames that are not subject to flow control: they go before the rest."""
        self._out.append(data)
        if not self.corked:
            self.run()

    def join(self, view: Http2Stream) -> None:
        """A stream has bytes, or its end."""
        if not view.queued and not view.closed and not view.out_closed:
            view.queued = True
            self._row.append(view)
        if not self.corked:
            self.run()

    def opened(self, increment: int) -> bool:
        """The client takes more on all streams; False when that is more than it can say."""
        self.window += increment
        return self.window <= MAX_WINDOW

    def run(self) -> None:
        """Let the streams put in what the windows allow, and write."""
        if self._running:
            return
        self._running = True
        try:
            row = self._row
            size = self.stream.chain.length
            while row and size < LOW:
                view = row[0]
                if self.window <= 0 and view.chain.length:
                    if not self._rotate_to_end():
                        for blocked in row:
                            blocked.waits()
                        break
                    continue
                row.popleft()
                view.queued = False
                size += self._turn(view)
            out, self._out = self._out, []
            if out:
                self.stream.write(out[0] if len(out) == 1 else b"".join(out))
            if row and not self._waiting and self.stream.chain.length and self.stream.chain.error is None:
                self._waiting = True
                self.stream.chain.mark(self._drained)
        finally:
            self._running = False
        if self._out or (row and self.window > 0 and not self.stream.chain.length and not self.stream.closed):
            self.run()
        elif self._emptied and not self.corked:
            self._emptied = False
            self._rested()

    def emptied(self) -> None:
        """The last stream is gone."""
        self._emptied = True
        if not self.corked:
            self.run()

    def _rotate_to_end(self) -> bool:
        """Without a window for all, only ends without bytes can be sent: bring one to the front."""
        for _ in range(len(self._row)):
            if not self._row[0].chain.length:
                return True
            self._row.rotate(-1)
        return False

    def _drained(self, error: BaseException | None) -> None:
        self._waiting = False
        if error is None:
            self.run()

    def _turn(self, view: Http2Stream) -> int:
        """One piece of a stream; returns the bytes it made."""
        if view.closed or view.out_closed:
            return 0
        chain = view.chain
        if not chain.length:
            return self._end(view) if view.ended else 0
        if view.window <= 0:
            view.waits()
            return 0
        most = min(view.settings.http2_chunk, self.frame_size, self.window, view.window)
        try:
            data = chain.peek(most)
        except OSError:  # a file has become shorter
            view.reset(INTERNAL_ERROR)
            return 0
        last = view.ended and len(data) == chain.length and not view.trailers
        self._out.append(frame(DATA, END_STREAM if last else 0, view.number, data))
        self.window -= len(data)
        view.window -= len(data)
        view.clock.suspend(view)
        if last:
            view.out_closed = True
        chain.consume(len(data))
        if last:
            view.carrier.out_closed(view)
        elif (chain.length or view.ended) and not view.queued:
            view.queued = True
            self._row.append(view)
        return len(data) + 9

    def _end(self, view: Http2Stream) -> int:
        if view.trailers:
            view.send_head(view.trailers, END_STREAM)
        else:
            view.out_closed = True
            self._out.append(frame(DATA, END_STREAM, view.number))
        view.carrier.out_closed(view)
        return 9
