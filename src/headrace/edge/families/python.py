"""Request handlers in Python, in the same phases as Lua: `content_by_python package.module:function`.

A handler is `def f(request)` or `async def f(request)`; what it returns is what phases.py says, None counting as OK
in the content phase. A log handler is a plain function. Modules are imported when the configuration is built, so a
mistake is found by `check`.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from headrace.edge import phases
from headrace.edge.families.common import HSLI, BaseFamily, spec, table
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class PythonFamily(BaseFamily):
    """access_by_python, content_by_python, log_by_python."""

    specs = table(
        spec("access_by_python", HSLI, 1),
        spec("content_by_python", ("location", "if in location"), 1),
        spec("log_by_python", HSLI, 1),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        function = _find(directive)
        if directive.name == "log_by_python" and inspect.iscoroutinefunction(function):
            raise ConfError(
                f'"{directive.args[0]}" is a coroutine function: the log phase cannot wait', directive.place
            )
        scope.set_once(directive, function)
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the handlers in force."""
        access = scope.get("access_by_python")
        if access is not None:
            location.add(phases.ACCESS, access)
        content = scope.own("content_by_python")
        if content is not None:
            location.content = _content(content)
        log = scope.get("log_by_python")
        if log is not None:
            location.add_log(log)


def _find(directive: Directive) -> Callable[[Request], Any]:
    module, colon, name = directive.args[0].partition(":")
    if not colon or not name:
        raise ConfError(f'invalid handler "{directive.args[0]}"', directive.place, hint="package.module:function")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfError(f'cannot load "{directive.args[0]}": {error!r}', directive.place) from error
    if not callable(found):
        raise ConfError(f'"{directive.args[0]}" is not callable', directive.place)
    function: Callable[[Request], Any] = found
    return function


def _content(function: Callable[[Request], Any]) -> Handler:
    async def answered(waiting: Awaitable[Result]) -> Result:
        code = await waiting
        return phases.OK if code is None else code

    def content(request: Request) -> Result | Awaitable[Result]:
        code = function(request)
        if code is None:
            return phases.OK
        return code if isinstance(code, int) else answered(code)

    return content
