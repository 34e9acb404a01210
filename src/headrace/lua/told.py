"""Handlers that tell of their runs, for locations whose error log has the level debug.

The lines are those of OpenResty: operators and scripts look for them to see which Lua code a request runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge.log import DEBUG
from headrace.lua.handlers import LuaHandlers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.edge.filters import BodyFilter, HeaderFilter
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request
    from headrace.lua.source import Source


class ToldHandlers(LuaHandlers):
    """See LuaHandlers; location: whose handlers they are."""

    def __init__(self, handlers: LuaHandlers, location: Location) -> None:
        super().__init__(handlers.runtime)
        self._location = location
        self._captured = False
        self._filtered = False

    def content(self, source: Source, *, keep: bool) -> Handler:
        """See LuaHandlers."""
        return self._handler("content", super().content(source, keep=keep))

    def access(self, source: Source) -> Handler:
        """See LuaHandlers."""
        return self._handler("access", super().access(source))

    def rewrite(self, source: Source) -> Handler:
        """See LuaHandlers."""
        return self._handler("rewrite", super().rewrite(source))

    def log(self, source: Source) -> Callable[[Request], None]:
        """See LuaHandlers."""
        handler = super().log(source)

        def told(request: Request) -> None:
            request.log_error(DEBUG, b'lua log handler, uri:"%b" c:0' % request.uri)
            handler(request)

        return told

    def header_filter(self, source: Source) -> HeaderFilter:
        """See LuaHandlers."""
        self._filter()
        return super().header_filter(source)

    def body_filter(self, source: Source) -> BodyFilter:
        """See LuaHandlers."""
        self._filter()
        body_filter = super().body_filter(source)

        def told(request: Request, data: bytes, last: bool) -> bytes:
            request.log_error(DEBUG, b'lua body filter for user lua code, uri "%b"' % request.uri)
            return body_filter(request, data, last)

        return told

    def _handler(self, phase: str, handler: Handler) -> Handler:
        if not self._captured:
            self._captured = True
            self._location.add_header_filter("script", _capture)
        text = b'lua %b handler, uri:"%%b" c:1' % phase.encode()

        def told(request: Request) -> Result | Awaitable[Result]:
            request.log_error(DEBUG, text % request.uri)
            return handler(request)

        return told

    def _filter(self) -> None:
        if not self._filtered:
            self._filtered = True
            self._location.add_header_filter("script", _filter)


def _capture(request: Request) -> None:
    for part in (b"header", b"body"):
        request.log_error(DEBUG, b'lua capture %b filter, uri "%b"' % (part, request.uri))


def _filter(request: Request) -> None:
    request.log_error(DEBUG, b'lua header filter for user lua code, uri "%b"' % request.uri)


def told(handlers: LuaHandlers, location: Location) -> LuaHandlers:
    """The handlers for a location: those that tell of their runs where its error log wants to know."""
    error_log = location.error_log
    return ToldHandlers(handlers, location) if error_log.targets and error_log.level >= DEBUG else handlers
