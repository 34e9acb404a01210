"""Conditions of `if`: `($x)`, `($x = text)`, `($x ~* regex)`, `(-f path)` and their negations.

https://nginx.org/en/docs/http/ngx_http_rewrite_module.html#if
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.edge.location import take_captures
from headrace.edge.regex import compile_regex
from headrace.edge.values import Value, compile_value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.request import Request
    from headrace.edge.variables import Variables

Condition = Callable[["Request"], bool]

_FILE_TESTS: Final[dict[str, Callable[[bytes], bool]]] = {
    "-f": os.path.isfile,
    "-d": os.path.isdir,
    "-e": os.path.exists,
    "-x": lambda path: os.access(path, os.X_OK),
}


def compile_condition(directive: Directive, variables: Variables) -> Condition:
    """Compile the words between the parentheses; raises ConfError as nginx words it."""
    words = _words(directive)
    bad = ConfError(f'invalid condition "{words[0] if words else ""}"', directive.place)
    if not words:
        raise bad
    first = words[0]
    if first.startswith("$") and len(first) > 1:
        value = compile_value(first, variables, directive.place)
        if len(words) == 1:
            return lambda request: evaluate(value, request) not in (b"", b"0")
        if len(words) != 3:
            raise bad
        return _comparison(value, words[1], words[2], directive, variables)
    test = _FILE_TESTS.get(first.removeprefix("!"))
    if test is not None and len(words) == 2:
        path = compile_value(words[1], variables, directive.place)
        wanted = not first.startswith("!")
        return lambda request: test(evaluate(path, request)) is wanted
    raise bad


def _words(directive: Directive) -> list[str]:
    """The words between the parentheses, each of which may touch a word or stand alone."""
    words = list(directive.args)
    if not words[0].startswith("("):
        raise ConfError(f'invalid condition "{words[0]}"', directive.place)
    words[0] = words[0][1:]
    if not words[-1].endswith(")"):
        raise ConfError(f'invalid condition "{words[-1]}"', directive.place)
    if len(words) > 1 and words[-1] == ")":
        words.pop()
    else:
        words[-1] = words[-1][:-1]
    return words[1:] if not words[0] else words


def _comparison(value: Value, operator: str, text: str, directive: Directive, variables: Variables) -> Condition:
    if operator in ("=", "!="):
        other = compile_value(text, variables, directive.place)
        wanted = operator == "="
        return lambda request: (evaluate(value, request) == evaluate(other, request)) is wanted
    if operator not in ("~", "~*", "!~", "!~*"):
        raise ConfError(f'unexpected "{operator}" in condition', directive.place)
    pattern = compile_regex(text, directive.place, caseless=operator.endswith("*"))
    for group in pattern.groupindex:
        variables.declare(group, directive.place)
    if operator.startswith("!"):
        return lambda request: pattern.search(evaluate(value, request)) is None

    def matches(request: Request) -> bool:
        match = pattern.search(evaluate(value, request))
        if match is None:
            return False
        take_captures(request, match)
        return True

    return matches
