"""The echo module that every OpenResty carries: small programs of output, waiting and subrequests in a location.

https://github.com/openresty/echo-nginx-module. A location's commands run in order as its content; what
echo_before_body and echo_after_body say goes around the body of any content.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.echo_commands import COMMANDS, Command, Run, text_of, words_of
from headrace.edge.families.common import MANY, BaseFamily, spec, table
from headrace.edge.values import Value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.filters import BodyFilter
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

IN: Final = ("location", "if in location")
AROUND: Final = ("http", "server", "location", "if in location")


class EchoFamily(BaseFamily):
    """echo and its kin."""

    specs = table(
        spec("echo", IN, 0, MANY),
        spec("echo_duplicate", IN, 2),
        spec("echo_flush", IN, 0),
        spec("echo_sleep", IN, 1),
        spec("echo_blocking_sleep", IN, 1),
        spec("echo_reset_timer", IN, 0),
        spec("echo_read_request_body", IN, 0),
        spec("echo_request_body", IN, 0),
        spec("echo_location", IN, 1, 2),
        spec("echo_location_async", IN, 1, 2),
        spec("echo_subrequest", IN, 2, MANY),
        spec("echo_subrequest_async", IN, 2, MANY),
        spec("echo_foreach_split", IN, 2, MANY),
        spec("echo_end", IN, 0),
        spec("echo_exec", IN, 1, 2),
        spec("echo_status", IN, 1),
        spec("echo_before_body", AROUND, 0, MANY),
        spec("echo_after_body", AROUND, 0, MANY),
    )

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See registry.Family."""
        name = directive.name
        if name in ("echo_before_body", "echo_after_body"):
            scope.add(name, text_of(scope, directive))
        elif name == "echo_status":
            if not directive.args[0].isdigit():
                raise ConfError(f'invalid value "{directive.args[0]}" in "echo_status" directive', directive.place)
            scope.set_once(directive, int(directive.args[0]))
        elif name == "echo_exec":
            if scope.own("echo_commands") or scope.own("echo_exec"):
                raise ConfError("echo_exec must stand alone among the echo commands", directive.place)
            scope.settings["echo_exec"] = words_of(scope, directive)
        else:
            commands: list[tuple[str, Command | list[Value]]] = scope.settings.setdefault("echo_commands", [])
            made = COMMANDS[name](scope, directive)
            commands.append((name, made))

    def compose(self, scope: Scope, location: Location) -> None:
        """The content of the location, and what stands around a body."""
        if location.kind == "server":
            _define(scope)
        commands = scope.own("echo_commands")
        if scope.own("echo_exec"):
            location.content = _exec(scope.own("echo_exec"))
        elif commands:
            location.content = _content(_program(commands), scope.get("echo_status"))
        before, after = scope.get("echo_before_body"), scope.get("echo_after_body")
        if before or after:
            location.add_header_filter("script", _unmeasured)
            location.add_body_filter("script", _around(before or [], after or []))


# the program


def _content(program: Command, status: int | None) -> Handler:
    def content(request: Request) -> int | Awaitable[int]:
        if request.started and request.finished:
            return phases.DONE
        run = Run(request)
        request.status = 200 if status is None else status
        waiting = program(run)
        if waiting is None and run.settle():
            request.finish()
            return phases.DONE
        return _rest(run, waiting)

    return content


async def _rest(run: Run, waiting: Awaitable[None] | None) -> int:
    if waiting is not None:
        await waiting
    await run.all_ended()
    run.request.finish()
    return phases.DONE


def _program(commands: list[tuple[str, Command | list[Value]]]) -> Command:
    """Commands one after the other; loops have been made of echo_foreach_split and echo_end."""
    flat: list[Command] = []
    stack: list[tuple[list[Command], list[Value]]] = []
    for name, made in commands:
        if name == "echo_foreach_split":
            assert isinstance(made, list)
            stack.append((flat, made))
            flat = []
        elif name == "echo_end":
            if not stack:
                raise ConfError("Found an echo_end that has no corresponding echo_foreach_split before it.")
            (outer, words), body = stack.pop(), flat
            outer.append(_loop(words, _sequence(body)))
            flat = outer
        else:
            assert callable(made)
            flat.append(made)
    while stack:  # the end of the location ends the loop
        (outer, words), body = stack.pop(), flat
        outer.append(_loop(words, _sequence(body)))
        flat = outer
    return _sequence(flat)


def _sequence(commands: list[Command]) -> Command:
    def run_all(run: Run) -> Awaitable[None] | None:
        for index, command in enumerate(commands):
            waiting = command(run)
            if waiting is not None:
                return _go_on(run, waiting, commands[index + 1 :])
        return None

    return run_all


async def _go_on(run: Run, waiting: Awaitable[None], commands: list[Command]) -> None:
    await waiting
    for command in commands:
        following = command(run)
        if following is not None:
            await following


def _loop(words: list[Value], body: Command) -> Command:
    async def loop(run: Run, parts: list[bytes]) -> None:
        for part in parts:
            run.request.set_slot(b"echo_it", part)
            waiting = body(run)
            if waiting is not None:
                await waiting

    def start(run: Run) -> Awaitable[None]:
        delimiter, *texts = [evaluate(word, run.request) for word in words]
        text = b" ".join(texts)
        parts = [part for part in text.split(delimiter) if part] if delimiter else [text]
        return loop(run, parts)

    return start


def _exec(words: list[Value]) -> Handler:
    def content(request: Request) -> int:
        uri, *more = [evaluate(word, request) for word in words]
        path, mark, query = uri.partition(b"?")
        args = more[0] if more else query if mark else None
        return request.internal_redirect(path, args if args is not None or uri.startswith(b"@") else b"")

    return content


# around a body


def _unmeasured(request: Request) -> None:
    request.content_length = None
    request.allow_ranges = None


def _around(before: list[Callable[[Request], bytes]], after: list[Callable[[Request], bytes]]) -> BodyFilter:
    def around(request: Request, data: bytes, last: bool) -> bytes:
        if request.get_slot(b"echo begun") is None:
            request.set_slot(b"echo begun", b"1")
            data = b"".join([text(request) for text in before]) + data
        return data + b"".join([text(request) for text in after]) if last else data

    return around


# variables


def _elapsed(request: Request) -> bytes:
    since = request.get_slot(b"echo timer")
    return b"%.3f" % (request.elapsed() if since is None else time.monotonic() - float(since))


def _raw_head(request: Request) -> bytes:
    return request.exchange.head.raw


def _main(request: Request) -> Request:
    while request.parent is not None:
        request = request.parent
    return request


def _counted(request: Request) -> bytes:
    main = _main(request)
    count = int(main.get_slot(b"echo count") or b"0") + 1
    main.set_slot(b"echo count", b"%d" % count)
    return b"%d" % count


def _define(scope: Scope) -> None:
    define = scope.build.variables.define
    define("echo_it", lambda request: request.get_slot(b"echo_it"))
    define("echo_timer_elapsed", _elapsed)
    define("echo_request_method", lambda request: request.method)
    define("echo_client_request_method", lambda request: _main(request).method)
    define("echo_client_request_headers", _raw_head)
    define("echo_request_body", lambda request: request.body)
    define("echo_request_uri", lambda request: request.uri + (b"?" + request.args if request.args else b""))
    define("echo_cacheable_request_uri", lambda request: request.uri + (b"?" + request.args if request.args else b""))
    define("echo_response_status", lambda request: b"%d" % request.status if request.status else None)
    define("echo_incr", _counted)
