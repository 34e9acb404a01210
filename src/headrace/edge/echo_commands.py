"""The commands of the echo module: what each does when a program comes to it. See families/echo.py.

A command gets the Run of its request, and returns an awaitable when it has to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise
from headrace.edge.values import Value, compile_value, evaluate
from headrace.errors import ConfError, HttpError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

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
        while not self.settle():
            self.woken = asyncio.Event()
            await self.woken.wait()

    def wake(self, _ended: Subrequest) -> None:
        """A subrequest has ended."""
        if self.woken is not None:
            self.woken.set()


Command = Callable[[Run], "Awaitable[None] | None"]


def words_of(scope: Scope, directive: Directive) -> list[Value]:
    """The arguments of a directive, compiled."""
    return [compile_value(word, scope.build.variables, directive.place) for word in directive.args]


def text_of(scope: Scope, directive: Directive) -> Callable[[Request], bytes]:
    """The words of echo with a space between them and a newline behind; `-n` leaves it out, `--` ends the options."""
    words = list(directive.args)
    end = b"\n"
    while words and words[0] in ("-n", "--"):
        if words.pop(0) == "--":
            break
        end = b""
    values = [compile_value(word, scope.build.variables, directive.place) for word in words]
    return lambda request: b" ".join([evaluate(value, request) for value in values]) + end


def _echo(scope: Scope, directive: Directive) -> Command:
    text = text_of(scope, directive)
    return lambda run: run.put(text(run.request))


def _duplicate(scope: Scope, directive: Directive) -> Command:
    count, text = words_of(scope, directive)

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
    (value,) = words_of(scope, directive)

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
    words = words_of(scope, directive)
    wait = not directive.name.endswith("_async")

    def start(run: Run) -> Awaitable[None] | None:
        uri, args = ([evaluate(word, run.request) for word in words] + [b""])[:2]
        return _subrequest(run, b"GET", uri, args, None, wait=wait)

    return start


def _subrequest_command(scope: Scope, directive: Directive) -> Command:
    method, uri, *rest = words_of(scope, directive)
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
    "echo_foreach_split": words_of,
    "echo_end": words_of,
}
"""echo_blocking_sleep waits without blocking: one request must not hold the others."""
