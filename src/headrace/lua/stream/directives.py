"""The directives of Lua in stream {}: those of http that mean the same there, and preread_by_lua, lua_add_variable.

https://github.com/openresty/stream-lua-nginx-module#directives
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.conf.check import Spec
from headrace.edge.families.common import flag, spec, table
from headrace.edge.families.maps import variable_name
from headrace.lua.directives import LuaFamily
from headrace.lua.runtime import Runtime
from headrace.lua.specs import SPECS
from headrace.lua.stream.handlers import StreamHandlers
from headrace.lua.stream.side import StreamSide
from headrace.stream.families import moved
from headrace.stream.steer import SessionSteered

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope
    from headrace.lua.handlers import LuaHandlers
    from headrace.lua.runtime import Settings
    from headrace.stream.service import StreamServer
    from headrace.stream.session import Session

_SS: Final = ("stream", "stream server")
_PHASES: Final = (
    "set",
    "server_rewrite",
    "rewrite",
    "access",
    "header_filter",
    "body_filter",
    "exit_worker",
    "content",
    "ssl_session_fetch",
    "ssl_session_store",
)
_ONLY_HTTP: Final = (
    *(name for name in SPECS if name.startswith(tuple(f"{phase}_by_lua" for phase in _PHASES))),
    *("log_by_lua", "lua_need_request_body", "lua_transform_underscores_in_response_headers", "lua_use_default_type"),
    *("lua_worker_thread_vm_pool_size", "lua_malloc_trim", "lua_thread_cache_max_entries"),
    "lua_http10_buffering",
)


class StreamLuaFamily(LuaFamily):
    """The family of the block; its `runtime` is another VM than http's."""

    block = "stream"
    steered = SessionSteered
    specs = table(
        *moved(SPECS, *_ONLY_HTTP).values(),
        Spec("preread_by_lua_block", frozenset(_SS), 0, 0, "lua"),
        spec("preread_by_lua_file", _SS, 1),
        Spec("content_by_lua_block", frozenset(("stream server",)), 0, 0, "lua"),
        spec("content_by_lua_file", ("stream server",), 1),
        spec("content_by_lua", ("stream server",), 1),
        spec("lua_add_variable", ("stream",), 1),
        flag("preread_by_lua_no_postpone", ("stream",)),
    )

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See edge.registry.Family."""
        if directive.name == "lua_add_variable":
            scope.build.variables.declare(variable_name(directive, directive.args[0]), directive.place)
            return
        super().apply(scope, directive)

    def _run(self, settings: Settings) -> tuple[Runtime, LuaHandlers]:
        sessions: dict[int, Session] = {}
        runtime = Runtime(settings, sessions, StreamSide)
        return runtime, StreamHandlers(runtime, sessions)

    def compose(self, scope: Scope, location: Location) -> None:
        """Nothing: http's locations are not its matter."""

    def before_tls(self, scope: Scope) -> None:
        """See stream.families.Script."""
        self._shake(scope)

    def compose_server(self, scope: Scope, server: StreamServer) -> None:
        """Add what scripts do to a server of the block."""
        preread, content, log = scope.get("preread_by_lua"), scope.own("content_by_lua"), scope.get("log_by_lua")
        if not (preread or content or log):
            return
        self._build(scope)
        handlers: Any = self._handlers
        place: Any = server
        if preread:
            step = handlers.preread(self._source(scope, place, preread))
            first = scope.get("preread_by_lua_no_postpone", False)
            if first:
                server.before_hello = (*server.before_hello, step)
            else:
                server.preread = (*server.preread, step)
        if content:
            server.content = handlers.script(self._source(scope, place, content))
        if log:
            server.log_handlers = (handlers.log(self._source(scope, place, log)), *server.log_handlers)
