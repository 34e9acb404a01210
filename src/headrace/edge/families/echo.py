"""The echo module that every OpenResty carries: small programs of output, waiting and subrequests in a location.

https://github.com/openresty/echo-nginx-module. A location's commands run in order as its content; what
echo_before_body and echo_after_body say goes around the body of any content.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.families.common import MANY, BaseFamily, spec, table
from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise
from headrace.edge.values import Value, compile_value, evaluate
from headrace.errors import ConfError, HttpError

if TYPE_CHECKING:
    import asyncio

    from headrace.conf.tree import Directive
    from headrace.edge.filters import BodyFilter
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

IN: Final = ("location", "if in location")
AROUND: Final = ("http", "server", "location", "if in location")
METHODS: Final = frozenset(
    {b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"MKCOL", b"COPY", b"MOVE"}
    | {b"PROPFIND", b"PROPPATCH", b"LOCK", b"UNLOCK"}
)
SLICE: Final = 1 << 16
"""Bytes of echo_duplicate that are made at a time."""


class Run:
    """One request that runs a program: its output in order, subrequests that have not ended in their places."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.places: deque[Subrequest | bytes] = deque()
        self.woken: asyncio.Event | None = None

    def put(self, data: bytes) -> None:
        """Output, behind the subrequests that are under way."""
        if self.places:
            self.places.append(data)
        else:
            self.request.output(data)

    def begin(self, subrequest: Subrequest) -> None:
        """Start a subrequest whose answer stands here."""
        self.places.append(subrequest)
        self.request.on_cleanup(subrequest.cancel)
        subrequest.start()

    def settle(self) -> bool:
        """Output what has ended by now; whether nothing is under way."""
        while self.places:
            first = self.places[0]
            if isinstance(first, Subrequest):
                if not first.finished:
                    return False
                first = first.answer
            self.places.popleft()
            if first:
                self.request.output(first)
        return True

    async def all_ended(self) -> None:
        """Return when no subrequest is under way."""
        import asyncio  # noqa: PLC0415 - only requests with subrequests need it

        while not self.settle():
            self.woken = asyncio.Event()
            await self.woken.wait()

    def wake(self, _ended: Subrequest) -> None:
        """A subrequest has ended."""
        if self.woken is not None:
            self.woken.set()


Command = Callable[[Run], "Awaitable[None] | None"]


def _words(scope: Scope, directive: Directive) -> list[Value]:
    return [compile_value(word, scope.build.variables, directive.place) for word in directive.args]


def _text(scope: Scope, directive: Directive) -> Callable[[Request], bytes]:
    """The words of echo with a space between them and a newline behind; `-n` leaves it out, `--` ends the options."""
    words = list(directive.args)
    end = b"\n"
    while words and words[0] in ("-n", "--"):
        if words.pop(0) == "--":
            break
        end = b""
    values = [compile_value(word, scope.build.variables, directive.place) for word in words]
    return lambda request: b" ".join([evaluate(value, request) for value in values]) + end


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
        _define(scope)
        name = directive.name
        if name in ("echo_before_body", "echo_after_body"):
            scope.add(name, _text(scope, directive))
        elif name == "echo_status":
            if not directive.args[0].isdigit():
                raise ConfError(f'invalid value "{directive.args[0]}" in "echo_status" directive', directive.place)
            scope.set_once(directive, int(directive.args[0]))
        elif name == "echo_exec":
            if scope.own("echo_commands") or scope.own("echo_exec"):
                raise ConfError("echo_exec must stand alone among the echo commands", directive.place)
            scope.settings["echo_exec"] = _words(scope, directive)
        else:
            commands: list[tuple[str, Command | list[Value]]] = scope.settings.setdefault("echo_commands", [])
            made = COMMANDS[name](scope, directive)
            commands.append((name, made))

    def compose(self, scope: Scope, location: Location) -> None:
        """The content of the location, and what stands around a body."""
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
        if status is not None and not request.status:
            request.status = status
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


# the commands


def _echo(scope: Scope, directive: Directive) -> Command:
    text = _text(scope, directive)
    return lambda run: run.put(text(run.request))


def _duplicate(scope: Scope, directive: Directive) -> Command:
    count, text = _words(scope, directive)

    def duplicate(run: Run) -> None:
        number, piece = evaluate(count, run.request).replace(b"_", b""), evaluate(text, run.request)
        if not number.isdigit():
            raise HttpError(500, f'invalid size specified: "{number.decode("latin-1")}"')
        left = int(number)
        at_once = max(SLICE // max(len(piece), 1), 1)
        while left > 0 and piece:
            run.put(piece * min(left, at_once))
            left -= at_once

    return duplicate


def _flush(_scope: Scope, _directive: Directive) -> Command:
    return lambda run: run.request.flush() if not run.places else None


def _seconds(value: Value, run: Run) -> float:
    text = evaluate(value, run.request)
    try:
        return float(text)
    except ValueError as error:
        raise HttpError(500, f'invalid sleep time "{text.decode("latin-1")}"') from error


def _sleep(scope: Scope, directive: Directive) -> Command:
    (value,) = _words(scope, directive)

    async def rest(run: Run, seconds: float) -> None:
        run.settle()
        run.request.push()
        await run.request.exchange.conn.clock.sleep(seconds)

    return lambda run: rest(run, _seconds(value, run))


def _reset_timer(_scope: Scope, _directive: Directive) -> Command:
    return lambda run: run.request.set_slot(b"echo timer", b"%f" % time.monotonic())


def _read_body(_scope: Scope, _directive: Directive) -> Command:
    return lambda run: run.request.read_body()


def _put_body(_scope: Scope, _directive: Directive) -> Command:
    def put(run: Run) -> None:
        if run.request.body:
            run.put(run.request.body)
        elif run.request.body_file is not None:
            with open(run.request.body_file, "rb") as file:
                while data := file.read(SLICE):
                    run.put(data)

    return put


def _location(scope: Scope, directive: Directive) -> Command:
    words = _words(scope, directive)
    wait = not directive.name.endswith("_async")

    def start(run: Run) -> Awaitable[None] | None:
        uri, args = ([evaluate(word, run.request) for word in words] + [b""])[:2]
        return _subrequest(run, b"GET", uri, args, None, wait=wait)

    return start


def _subrequest_command(scope: Scope, directive: Directive) -> Command:
    method, uri, *rest = _words(scope, directive)
    flags = dict.fromkeys(("-q", "-b", "-f"), b"")
    options: dict[str, Value] = dict(flags)
    given: set[str] = set()
    texts = directive.args[2:]
    index = 0
    while index < len(texts):
        if texts[index] not in options or index + 1 >= len(texts):
            raise ConfError(f'Unknown option for {directive.name}: "{texts[index]}"', directive.place)
        options[texts[index]] = rest[index + 1]
        given.add(texts[index])
        index += 2
    wait = not directive.name.endswith("_async")

    def start(run: Run) -> Awaitable[None] | None:
        request = run.request
        body: bytes | None = evaluate(options["-b"], request) if "-b" in given else None
        if "-f" in given:
            with open(evaluate(options["-f"], request), "rb") as file:
                body = file.read()
        name = evaluate(method, request)
        if name not in METHODS:
            raise HttpError(500, "invalid method in echo_subrequest")
        return _subrequest(run, name, evaluate(uri, request), evaluate(options["-q"], request), body, wait=wait)

    return start


def _subrequest(
    run: Run, method: bytes, uri: bytes, args: bytes, body: bytes | None, *, wait: bool
) -> Awaitable[None] | None:
    path, mark, query = uri.partition(b"?")
    if mark:
        args = query + b"&" + args if args else query
    made = Subrequest(run.request, normalise(path), args, method=method, done=run.wake)
    if body is not None:
        made.give_body(body)
    elif run.request.header_in(b"content-length") is not None:
        made.give_body(None)
    run.begin(made)
    return run.all_ended() if wait else None


def _exec(words: list[Value]) -> Handler:
    def content(request: Request) -> int:
        uri, *more = [evaluate(word, request) for word in words]
        path, mark, query = uri.partition(b"?")
        args = more[0] if more else query if mark else None
        return request.internal_redirect(path, args if args is not None or uri.startswith(b"@") else b"")

    return content


COMMANDS: Final[dict[str, Callable[[Scope, Directive], Command | list[Value]]]] = {
    "echo": _echo,
    "echo_duplicate": _duplicate,
    "echo_flush": _flush,
    "echo_sleep": _sleep,
    "echo_blocking_sleep": _sleep,
    "echo_reset_timer": _reset_timer,
    "echo_read_request_body": _read_body,
    "echo_request_body": _put_body,
    "echo_location": _location,
    "echo_location_async": _location,
    "echo_subrequest": _subrequest_command,
    "echo_subrequest_async": _subrequest_command,
    "echo_foreach_split": _words,
    "echo_end": _words,
}
"""echo_blocking_sleep waits without blocking: one request must not hold the others."""


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
