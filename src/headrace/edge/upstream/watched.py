"""What ends a visit from outside: a client that leaves, a request body that breaks, a client that does not read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.edge import log, phases
from headrace.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request
    from headrace.edge.upstream.settings import Settings


class Watched:
    """The part of a visit that is interrupted. gone: the client has left. failure: what else has ended it."""

    request: Request
    settings: Settings
    task: asyncio.Task[None] | None = None
    gone = False
    patient = False
    """The answer is read to its end even if the client leaves."""
    failure: BaseException | None = None
    _current: asyncio.Task[None] | None = None

    def log(self, level: int, message: str | bytes) -> None:
        """A line in the error log."""
        text = message.encode("utf-8", "surrogateescape") if isinstance(message, str) else message
        self.request.log_error(level, text)

    def account(self, status: int) -> None:
        """The try that is under way has ended."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the visit has."""
        raise NotImplementedError

    async def watched(self, asking: Awaitable[int | None]) -> int | None:
        """Ask, unless the client leaves; what a content handler returns. The visit ends in every case."""
        exchange = self.request.exchange
        self._watch()
        try:
            return await asking
        except asyncio.CancelledError:
            if not self.gone and self.failure is None:
                raise
            assert self.task is not None
            self.task.uncancel()
            return self.interrupted()
        finally:
            exchange.on_abort = None
            exchange.abort_on_eof = False
            self.close()

    def _watch(self) -> None:
        request = self.request
        self.patient = self.settings.ignore_abort
        if request.parent is None and not self.patient:
            self.task = asyncio.current_task()
            request.exchange.on_abort = self._client_gone
            request.exchange.abort_on_eof = True
            if request.exchange.aborted:
                self._client_gone()

    def _client_gone(self) -> None:
        self.gone = True
        if self.task is not None:
            self.task.cancel()

    def interrupt(self, error: BaseException) -> None:
        """End the visit from another task: the request body broke, the client does not read."""
        if self.failure is None:
            self.failure = error
            if self.task is None:
                self.task = self._current
            if self.task is not None:
                self.task.cancel()

    def interrupted(self) -> int:
        """What the visit ends with that was interrupted."""
        if self.gone:
            self.log(log.INFO, "client prematurely closed connection, so upstream connection is closed too")
            self.account(499)
            return 499
        error = self.failure
        if isinstance(error, HttpError):
            self.log(log.INFO, error.message)
            self.request.exchange.keep_alive = False
            self.account(error.status)
            return error.status
        self.account(499)
        return phases.ERROR if self.request.header_sent else 499
