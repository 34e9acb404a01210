"""A body in which answers of subrequests stand: what comes behind one that has not ended waits for it.

The last filter of such a body before compression. Its order is the order in which parts and subrequests were put in;
subrequests run side by side. https://nginx.org/en/docs/dev/development_guide.html#http_subrequests
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from headrace.edge import phases
from headrace.edge.subrequest import Subrequest

if TYPE_CHECKING:
    from headrace.edge.filters import BodyFilter
    from headrace.edge.phases import Steps
    from headrace.edge.request import Request


class Postponed:
    """The parts of one request's body that wait. steps: what the request runs until its answer can end."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rest: tuple[BodyFilter, ...] = ()
        self.queue: deque[bytes | Subrequest] = deque()
        self.steps: Steps = ((phases.CONTENT, self._wait),)
        self._changed: asyncio.Event | None = None
        request.on_cleanup(self.cancel)

    def take_rest(self) -> None:
        """Become the last of the request's filters; those behind it get their parts from here."""
        filters = self.request.body_filters
        if self.filter in filters:
            at = filters.index(self.filter)
            self.rest, self.request.body_filters = filters[at + 1 :], filters[: at + 1]

    def filter(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter: pass on what nothing stands before."""
        del request
        if self.queue:
            if data:
                self.queue.append(data)
            if last:
                self.request.ending = True
            return b""
        return self._through(data, last=last)

    def put(self, data: bytes) -> None:
        """Put in a part from within a filter, before a subrequest that comes behind it."""
        if self.queue:
            self.queue.append(data)
        else:
            self._send(self._through(data, last=False))

    def begin(self, subrequest: Subrequest) -> None:
        """Start a subrequest whose answer stands here; its `done` has to call settle()."""
        self.queue.append(subrequest)
        subrequest.start()

    def waits_for(self, subrequest: Subrequest) -> bool:
        """Whether it is the last one that was begun."""
        return next((item for item in reversed(self.queue) if isinstance(item, Subrequest)), None) is subrequest

    def settle(self) -> None:
        """Send what nothing stands before any more."""
        queue, request = self.queue, self.request
        while queue:
            first = queue[0]
            if isinstance(first, Subrequest):
                if not first.finished:
                    return
                data = b"" if first.muted else first.answer
            else:
                data = first
            queue.popleft()
            if data:
                self._send(self._through(data, last=False))
        if request.ending and not request.finished:
            request.ending = False
            self._send(self._through(b"", last=True))
            request.close_answer()
        if self._changed is not None:
            self._changed.set()

    def _through(self, data: bytes, *, last: bool) -> bytes:
        for body_filter in self.rest:
            data = body_filter(self.request, data, last)
        return data

    def _send(self, data: bytes) -> None:
        if data and not self.request.header_only and not self.request.finished:
            self.request.put(data)

    async def _wait(self, request: Request) -> int:
        """Until the answer has ended."""
        while not request.finished:
            if not self.queue:
                request.finish()
                break
            self._changed = asyncio.Event()
            await self._changed.wait()
        return phases.DONE

    def cancel(self) -> None:
        """The request has ended: end what is under way."""
        for item in self.queue:
            if isinstance(item, Subrequest):
                item.cancel()
        self.queue.clear()


def postponed(request: Request) -> Postponed:
    """The waiting parts of a request, for a header filter that may start subrequests."""
    if request.postponed is None:
        request.postponed = Postponed(request)
    return request.postponed


def place(request: Request) -> None:
    """The header filter that gives the waiting parts their place: behind what changes bodies, before compression."""
    parts = request.postponed
    if parts is not None and parts.filter not in request.body_filters:
        request.body_filters = (*request.body_filters, parts.filter)
