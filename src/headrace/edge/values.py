"""Complex values: texts of a configuration with variables in them, compiled once.

`"a$b${c}"` becomes bytes when it is constant and a function of the request otherwise; `$1` to `$9` are the
captures of the last regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.edge.variables import Getter, Variables
    from headrace.errors import Place

Value = bytes | Callable[["Request"], bytes]

_PIECE: Final = re.compile(r"\$(?:\{([^}]*)\}|([0-9](?![A-Za-z0-9_])|[1-9]|[A-Za-z0-9_]+)?)", re.ASCII)


def to_bytes(text: str) -> bytes:
    """Text of a configuration as it goes on the wire."""
    return text.encode("utf-8", "surrogateescape")


def evaluate(value: Value, request: Request) -> bytes:
    """The value for this request."""
    return value if isinstance(value, bytes) else value(request)


def compile_value(
    text: str,
    variables: Variables,
    place: Place | None,
    *,
    captures: Callable[[int], Getter] | None = None,
) -> Value:
    """Compile a text; raises ConfError as nginx words it.

    A variable without value is nothing. captures: as split_value.
    """
    pieces = split_value(text, variables, place, captures)
    if all(isinstance(piece, bytes) for piece in pieces):
        return b"".join(piece for piece in pieces if isinstance(piece, bytes))
    if len(pieces) == 1:
        (getter,) = pieces
        assert not isinstance(getter, bytes)
        return _single(getter)
    return _joined(pieces)


def split_value(
    text: str, variables: Variables, place: Place | None, captures: Callable[[int], Getter] | None = None
) -> list[bytes | Getter]:
    """The constant and the variable pieces of a text, in order. captures: makes the getters of $1 to $9."""
    pieces: list[bytes | Getter] = []
    position = 0
    for match in _PIECE.finditer(text):
        if match.start() > position:
            pieces.append(to_bytes(text[position : match.start()]))
        position = match.end()
        name = match.group(1) or match.group(2)
        if not name:
            if text.startswith("${", match.start()) and "}" not in text[match.start() :]:
                raise ConfError(f'the closing bracket in "{text[match.start() + 2 :]}" variable is missing', place)
            raise ConfError("invalid variable name", place)
        if name.isdigit():
            pieces.append((captures or capture)(int(name)))
        elif re.fullmatch(r"[A-Za-z0-9_]+", name):
            pieces.append(variables.getter(name, place))
        else:
            raise ConfError(f'invalid variable name in "{text}"', place)
    if position < len(text) or not pieces:
        pieces.append(to_bytes(text[position:]))
    return pieces


def capture(number: int) -> Getter:
    """A getter of the n-th capture of the last regular expression that matched."""

    def get(request: Request) -> bytes | None:
        captures = request.captures
        return captures[number] if number < len(captures) else None

    return get


def _single(getter: Getter) -> Value:
    def value(request: Request) -> bytes:
        return getter(request) or b""

    return value


def _joined(pieces: list[bytes | Getter]) -> Value:
    getters = tuple(piece for piece in pieces if not isinstance(piece, bytes))
    template = b"".join(piece.replace(b"%", b"%%") if isinstance(piece, bytes) else b"%b" for piece in pieces)

    def value(request: Request) -> bytes:
        return template % tuple([getter(request) or b"" for getter in getters])

    return value
