"""preread_by_lua, content_by_lua and log_by_lua: a session stands where http has a request.

What a run gives is the same as there (lua.handlers): bytes of output, a code, or False while it waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from headrace.edge.log import INFO
from headrace.lua.handlers import LuaHandlers
from headrace.lua.runtime import CONTENT, KEEP, REWRITE

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.lua.handlers import State
    from headrace.lua.runtime import Runtime
    from headrace.lua.source import Source
    from headrace.lua.stream.side import StreamSide
    from headrace.stream.session import Session
    from headrace.stream.steps import Content, Step

PREREAD: Final = REWRITE
"""Its number in the VM: see prelude/session/session.lua."""
OK: Final = 200
INTERNAL_ERROR: Final = 500


class StreamHandlers(LuaHandlers):
    """Makes the handlers of one runtime. sessions: those that have run Lua, by handle; the runtime's."""

    def __init__(self, runtime: Runtime, sessions: dict[int, Session]) -> None:
        super().__init__(runtime)
        self.sessions = sessions
        self._client = cast("StreamSide", runtime.side).client
        self._rest = runtime.vm.entry("client_rest")
        self._forget_client = runtime.vm.entry("forget_client")

    def preread(self, source: Source) -> Step:
        """A step of the preread phase: passing means go on."""
        handler: Any = self._make(source, PREREAD + KEEP, self._ended_preread)

        def step(session: Session) -> int | Awaitable[int | None] | None:
            result: int | Awaitable[int | None] | None = handler(session)
            return result

        return step

    def script(self, source: Source) -> Content:
        """What is done with a session."""
        handler: Any = self._make(source, CONTENT + KEEP, self._ended_script)

        def content(session: Session) -> int | Awaitable[int]:
            result: int | Awaitable[int] = handler(session)
            return result

        return content

    @staticmethod
    def _may_be_late(_request: Any) -> bool:
        return False

    def _enter(self, request: Any) -> State:
        session: Session = request
        if session.lua is None:
            self.sessions[session.id] = session
            session.on_cleanup(lambda: self._leave(session))
        return super()._enter(request)

    def _leave(self, session: Session) -> None:
        self._client.release(session, b"")
        self._forget_client(session.id)
        del self.sessions[session.id]

    def _wait(self, request: Any, ended: Any, check_abort: bool) -> Any:
        waiting = super()._wait(request, ended, check_abort=False)
        session: Session = request
        if check_abort and session.datagrams is None:
            session.abort_on_eof = True
            session.on_abort = partial(self._gone, session)
            self._client.client(session).watch()
        return waiting

    def _gone(self, session: Session) -> None:
        session.log_error(INFO, b"stream client prematurely closed connection")
        self.runtime.scheduler.aborted(session.id)

    def _output(self, session: Session, result: bytes | int) -> int:
        """The code of a run whose output is written."""
        if isinstance(result, int):
            return result
        if result:
            self._client.output(session.id, result)
        return 0

    def _ended_preread(self, request: Any, result: bytes | int) -> int | None:
        session: Session = request
        code = self._output(session, result)
        self._client.release(session, self._rest(session.id) or b"")
        if code in {0, -5}:
            return None
        session.trace(b"finalize stream request: %d" % code)
        return INTERNAL_ERROR if code < 0 else code

    def _ended_script(self, request: Any, result: bytes | int) -> int:
        code = self._output(request, result)
        if code in {0, -5}:
            return OK
        return INTERNAL_ERROR if code < 0 else code
