"""set, if, break, return, rewrite: a small program per level, run in its rewrite phase.

https://nginx.org/en/docs/http/ngx_http_rewrite_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.conf.check import Spec
from headrace.edge import phases
from headrace.edge.body import refuse_broken_body
from headrace.edge.conditions import compile_condition
from headrace.edge.families.common import BaseFamily, flag, spec, table
from headrace.edge.location import Location, take_captures
from headrace.edge.log import NOTICE
from headrace.edge.regex import compile_regex
from headrace.edge.scope import Scope
from headrace.edge.special import REDIRECTS
from headrace.edge.uri import escape_args, unescape_redirect
from headrace.edge.values import Value, capture, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.request import Request
    from headrace.edge.variables import Getter

    Op = Callable[[Request], int | None]

SLI: Final = ("server", "location", "if")
STOP: Final = -200
"""What an op returns to end the program of its level."""


class RewriteFamily(BaseFamily):
    """The rewrite module. if_locations: the values within each `if` block of a location, by id of the scope."""

    specs = table(
        spec("set", SLI, 2),
        spec("break", SLI, 0),
        spec("return", SLI, 1, 2),
        spec("rewrite", SLI, 2, 3),
        Spec("if", frozenset(("server", "location")), 1, 1 << 30, "block"),
        flag("rewrite_log", ("http", "server", "location", "if")),
        flag("uninitialized_variable_warn", ("http", "server", "location", "if")),
    )

    def __init__(self) -> None:
        self.if_locations: dict[int, Location] = {}

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name == "if":
            return self._if(scope, directive)
        if directive.name in ("rewrite_log", "uninitialized_variable_warn"):
            scope.set_once(directive, directive.args[0].lower() == "on")
            return None
        make = {"set": _set, "break": _break, "return": _return, "rewrite": _rewrite}[directive.name]
        scope.add("rewrite_ops", make(scope, directive))
        return None

    def _if(self, scope: Scope, directive: Directive) -> Scope:
        condition = compile_condition(directive, scope.build.variables)
        inner = Scope("if", directive, scope, scope.build)
        ops: list[Op] = inner.settings.setdefault("rewrite_ops", [])
        chosen: Location | None = None
        if scope.enclosing("location") is not None:
            chosen = self.if_locations[id(inner)] = Location("if", b"", inner)

        def run_if(request: Request) -> int | None:
            if not condition(request):
                return None
            if chosen is not None:
                request.location = chosen
            return _run(ops, request)

        scope.add("rewrite_ops", run_if)
        return inner

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the program of the level to its rewrite phase."""
        location.rewrite_log = scope.get("rewrite_log", False)
        location.warn_uninitialized = scope.get("uninitialized_variable_warn", True)
        ops: list[Op] | None = scope.own("rewrite_ops")
        if not ops or location.kind == "if":
            return
        if location.kind == "server":
            location.add(phases.SERVER_REWRITE, _program(tuple(ops)))
        elif len(ops) == 1 and getattr(ops[0], "ends", False):
            location.add(phases.REWRITE, ops[0])
        else:
            location.add(phases.REWRITE, _program(tuple(ops)))


def _run(ops: list[Op] | tuple[Op, ...], request: Request) -> int | None:
    for op in ops:
        code = op(request)
        if code is not None:
            return code
    return None


def _program(ops: tuple[Op, ...]) -> Op:
    def program(request: Request) -> int | None:
        before = request.location
        code = _run(ops, request)
        if code is None or code == STOP:
            return None if request.location is before else phases.RELOCATE
        return code

    return program


def _set(scope: Scope, directive: Directive) -> Op:
    name, text = directive.args
    if len(name) < 2 or not name.startswith("$"):
        raise ConfError(f'invalid variable name "{name}"', directive.place)
    variables = scope.build.variables
    variables.declare(name[1:], directive.place, warn=True)
    value = compile_value(text, variables, directive.place)
    setter = variables.setter(name[1:].encode())

    def set_variable(request: Request) -> None:
        setter(request, evaluate(value, request))

    return set_variable


def _break(_scope: Scope, _directive: Directive) -> Op:
    def stop(request: Request) -> int:
        if request.uri_changed:
            request.uri_changed, request.uri_replaced = False, True
        return STOP

    return stop


def _return(scope: Scope, directive: Directive) -> Op:
    first = directive.args[0]
    text: str | None = directive.args[1] if len(directive.args) > 1 else None
    if text is None and first.startswith(("http://", "https://", "$scheme")):
        status, text = 302, first
    elif not first.isascii() or not first.isdigit() or int(first) > 999:
        raise ConfError(f'invalid return code "{first}"', directive.place)
    else:
        status = int(first)
    value = compile_value(text or "", scope.build.variables, directive.place)
    op = _redirect(status, value) if status in REDIRECTS else _answer(status, value, text)
    op.ends = True  # type: ignore[attr-defined]
    return op


def _redirect(status: int, value: bytes | Callable[[Request], bytes]) -> Op:
    def redirect(request: Request) -> int:
        request.discard_body()
        request.location_out = evaluate(value, request)
        return status

    return redirect


def _answer(status: int, value: bytes | Callable[[Request], bytes], text: str | None) -> Op:
    if status >= 400 and not text:
        return lambda _request: status
    if status == 444:
        return lambda _request: status

    def answer(request: Request) -> int:
        if request.exchange.body is not None:
            refuse_broken_body(request)
        request.status = status
        request.respond(status, value(request) if callable(value) else value)
        return phases.DONE

    if isinstance(value, bytes):
        constant = value

        def answer_constant(request: Request) -> int:
            if request.exchange.body is not None:
                refuse_broken_body(request)
            request.respond(status, constant)
            return phases.DONE

        answer_constant.constant = True  # type: ignore[attr-defined]
        return answer_constant
    return answer


def _args_capture(number: int) -> Getter:
    """A capture in a query string: escaped again when the URI came with escapes, as nginx does."""
    plain = capture(number)

    def get(request: Request) -> bytes | None:
        value, target = plain(request), request.exchange.head.target
        return escape_args(value) if value and (b"%" in target or b"+" in target) else value

    return get


def _rewrite(scope: Scope, directive: Directive) -> Op:
    pattern_text, replacement, *flags = directive.args
    place = directive.place
    pattern = compile_regex(pattern_text, place)
    for group in pattern.groupindex:
        scope.build.variables.declare(group, place)
    if flags and flags[0] not in ("last", "break", "redirect", "permanent"):
        raise ConfError(f'invalid parameter "{flags[0]}"', place)
    status = {"redirect": 302, "permanent": 301}.get(flags[0] if flags else "", 0)
    if not status and replacement.startswith(("http://", "https://", "$scheme")):
        status = 302
    keep_args = not replacement.endswith("?")
    path_text, mark, args_text = replacement.partition("?")
    path = compile_value(path_text, scope.build.variables, place, captures=_args_capture if status else None)
    args: Value = b""
    if mark:
        args = compile_value(args_text.removesuffix("?"), scope.build.variables, place, captures=_args_capture)
    ending = {"last": STOP, "break": STOP}.get(flags[0] if flags else "")
    jump = not (flags and flags[0] == "break")
    shown = to_bytes(pattern_text)

    def rewrite(request: Request) -> int | None:
        match = pattern.search(request.uri)
        if request.location.rewrite_log:
            told = b"matches" if match else b"does not match"
            request.log_error(NOTICE, b'"%b" %b "%b"' % (shown, told, request.uri))
        if match is None:
            return None
        take_captures(request, match)
        new_path, new_args = evaluate(path, request), evaluate(args, request)
        if keep_args and request.args:
            new_args = new_args + b"&" + request.args if new_args else request.args
        if request.location.rewrite_log:
            request.log_error(NOTICE, b'rewritten data: "%b", args: "%b"' % (new_path, new_args))
        if status:
            target = unescape_redirect(new_path)
            request.location_out = target + b"?" + new_args if new_args else target
            return status
        if not new_path:
            request.log_error(4, b"the rewritten URI has a zero length")
            return 500
        request.uri, request.args = new_path, new_args
        request.internal = True
        request.uri_changed = jump
        request.uri_replaced = not jump
        return ending

    return rewrite
