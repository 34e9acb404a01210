"""mirror: copies of requests to other locations, whose answers are thrown away; post_action: one after the end.

https://nginx.org/en/docs/http/ngx_http_mirror_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge import phases
from headrace.edge.families.common import HSL, HSLI, BaseFamily, flag, flag_of, spec, table
from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class MirrorFamily(BaseFamily):
    """mirror, mirror_request_body, post_action."""

    specs = table(spec("mirror", HSL, 1), flag("mirror_request_body", HSL), spec("post_action", HSLI, 1))

    @staticmethod
    def _do_mirror(scope: Scope, directive: Directive) -> None:
        own: list[bytes] = scope.settings.setdefault("mirror", [])
        if directive.args[0] == "off":
            if own:
                raise ConfError('"mirror" directive is duplicate', directive.place)
            return
        own.append(to_bytes(directive.args[0]))

    @staticmethod
    def _do_mirror_request_body(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    @staticmethod
    def _do_post_action(scope: Scope, directive: Directive) -> None:
        text = directive.args[0]
        value = None if text == "off" else compile_value(text, scope.build.variables, directive.place)
        scope.set_once(directive, value)

    def compose(self, scope: Scope, location: Location) -> None:
        """Copies are sent before the content is made; the action is begun when the request is logged."""
        targets: list[bytes] | None = scope.get("mirror")
        if targets:
            location.add(phases.PRECONTENT, _mirror(tuple(targets), body=scope.get("mirror_request_body", True)))
        action: Value | None = scope.get("post_action")
        if action is not None:
            location.add_log(_after(action))


def _mirror(targets: tuple[bytes, ...], *, body: bool) -> Handler:
    def mirror(request: Request) -> Result | Awaitable[Result]:
        if request.parent is not None:
            return None
        if body:
            waiting = request.read_body()
            if waiting is not None:
                return _read(request, waiting)
        _send(request)
        return None

    async def _read(request: Request, waiting: Awaitable[None]) -> None:
        await waiting
        _send(request)

    def _send(request: Request) -> None:
        for target in targets:
            path, _, args = target.partition(b"?")
            copy = _background(request, path, args or request.args, request.method)
            if body:
                copy.give_body(request.body, request.body_file)
            else:
                copy.give_body(None)
            copy.start()

    return mirror


def _background(request: Request, path: bytes, args: bytes, method: bytes) -> Subrequest:
    """A subrequest that nobody waits for: it ends by itself, also after its parent."""
    made = Subrequest(request, normalise(path), args, method=method)
    made.header_only = True
    made.share_vars(request)
    return made


def _after(action: Value) -> Callable[[Request], None]:
    def after(request: Request) -> None:
        if request.parent is not None:
            return
        target = evaluate(action, request)
        if target.startswith(b"@"):
            location = request.server.named.get(target)
            if location is None:
                return
            made = Subrequest(request, request.uri, request.args)
            made.enter(location)
        else:
            path, _, args = target.partition(b"?")
            made = Subrequest(request, normalise(path), args)
        made.header_only = True
        made.share_vars(request)
        made.start()

    return after
