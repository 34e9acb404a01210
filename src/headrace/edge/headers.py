"""Header fields of requests and answers, in order, with names compared without regard to case.

Both lists are made only when somebody asks: most requests are answered without either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.core.http1.server import Exchange

_BAD: Final = re.compile(rb"[\r\n\0]")


def escape(text: bytes) -> bytes:
    """Percent-encode what would break out of a header line (RFC 9110 5.5): CR, LF, NUL. The rest stays as it is."""
    return _BAD.sub(lambda match: b"%%%02X" % match.group()[0], text) if _BAD.search(text) else text


class HeadersOut:
    """The header fields of an answer beside those with a life of their own (Content-Type, Content-Length, ...).

    Whatever is put in is made harmless first: CR, LF and NUL are percent-encoded.
    """

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []

    def add(self, name: bytes, value: bytes) -> None:
        """Append a field, also when others of the name exist."""
        self.fields.append((escape(name), escape(value)))

    def set(self, name: bytes, value: bytes) -> None:
        """Replace all fields of the name by one, in the place of the first."""
        lower = name.lower()
        for field in self.fields:
            if field[0].lower() == lower:
                self.set_all(name, (value,))
                return
        self.fields.append((escape(name), escape(value)))

    def set_all(self, name: bytes, values: Iterable[bytes]) -> None:
        """Replace all fields of the name; an empty iterable removes them."""
        lower = name.lower()
        name = escape(name)
        new = [(name, escape(value)) for value in values]
        kept: list[tuple[bytes, bytes]] = []
        placed = False
        for field in self.fields:
            if field[0].lower() != lower:
                kept.append(field)
            elif not placed:
                placed = True
                kept.extend(new)
        if not placed:
            kept.extend(new)
        self.fields = kept

    def get(self, name: bytes) -> bytes | None:
        """The value of the first field of the name."""
        lower = name.lower()
        for key, value in self.fields:
            if key.lower() == lower:
                return value
        return None

    def get_all(self, name: bytes) -> list[bytes]:
        """The values of all fields of the name, in order."""
        lower = name.lower()
        return [value for key, value in self.fields if key.lower() == lower]

    def remove(self, name: bytes) -> None:
        """Remove all fields of the name."""
        lower = name.lower()
        self.fields = [field for field in self.fields if field[0].lower() != lower]

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


class HeadersIn:
    """The header fields of a request, once somebody changes them; until then the parsed head answers."""

    __slots__ = ("fields",)

    def __init__(self, exchange: Exchange) -> None:
        self.fields: list[tuple[bytes, bytes]] = list(exchange.head.headers())

    def get(self, name: bytes) -> bytes | None:
        """The value of the first field of the name (any case)."""
        lower = name.lower()
        for key, value in self.fields:
            if key.lower() == lower:
                return value
        return None

    def set_all(self, name: bytes, values: Iterable[bytes]) -> None:
        """Replace all fields of the name; an empty iterable removes them."""
        lower = name.lower()
        self.fields = [field for field in self.fields if field[0].lower() != lower]
        self.fields.extend((name, value) for value in values)

    def add(self, name: bytes, value: bytes) -> None:
        """Append a field."""
        self.fields.append((name, value))
