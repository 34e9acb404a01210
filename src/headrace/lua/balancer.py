"""balancer_by_lua*: the script of an upstream, run for each try of a request.

https://github.com/openresty/lua-nginx-module#balancer_by_lua_block
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge import log
from headrace.edge.upstream.steer import Steered
from headrace.lua.runtime import BALANCER

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.edge.request import Request
    from headrace.edge.upstream.peers import Chooser, Group
    from headrace.lua.handlers import LuaHandlers
    from headrace.lua.source import Source

ERROR = 500


def balanced(
    handlers: LuaHandlers, source: Source, kind: type[Steered] = Steered
) -> Callable[[Group, Request], Chooser]:
    """What makes choosers that run a script."""
    runtime = handlers.runtime
    api = runtime.balancer

    def script(request: Request, steered: Steered) -> int:
        handlers.begin(request, source)
        chunk = source.chunk(request)
        if chunk.failure is not None:
            request.log_error(log.ERR, chunk.said)
            return ERROR
        outer, api.steered = api.steered, steered
        try:
            ok, value = runtime.run_plain(chunk.ref, request.id, BALANCER)[:2]
        finally:
            api.steered = outer
        if not ok:
            request.log_error(log.ERR, value)
            return ERROR
        code = int(value or 0)
        return ERROR if code == -1 else code

    return lambda group, request: kind(group, request, script)
