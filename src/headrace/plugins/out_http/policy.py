"""What an answer means for the chunk: delivered, to be tried again, or given up.

2xx is delivered. A code of `retryable_response_codes` is tried again. Anything else, 1xx and 3xx
included, is unrecoverable (to the secondary or the backup), or, with
`error_response_as_unrecoverable false`, logged and dropped
(https://docs.fluentd.org/output/http#retryable_response_codes).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.errors import Error, Side, Unrecoverable

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_RETRYABLE: Final = frozenset({503})
TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)})
"""The value `transient`: what the same request may get past later (RFC 9110 15.5.9, 15.6; RFC 6585 4; RFC 8470 5.2)."""

_MAX_QUOTED: Final = 1024
_CLASS: Final = re.compile(r"([1-5])xx")


def parse_codes(values: Iterable[object]) -> frozenset[int]:
    """The codes of a list: numbers, classes such as `5xx`, or the word `transient`.

    Raises ValueError with a sentence for the user.
    """
    codes: set[int] = set()
    for value in values:
        word = str(value).strip().lower()
        if word == "transient":
            codes |= TRANSIENT
        elif match := _CLASS.fullmatch(word):
            first = int(match[1]) * 100
            codes.update(range(first, first + 100))
        elif word.isdecimal() and 100 <= int(word) <= 599:
            codes.add(int(word))
        else:
            raise ValueError(f'"{value}" is no HTTP status code, class such as 5xx, or the word transient')
    return frozenset(codes)


class ResponsePolicy:
    """The rules of one output."""

    def __init__(self, retryable: frozenset[int] = DEFAULT_RETRYABLE, *, unrecoverable: bool = True) -> None:
        self.retryable = retryable
        self.unrecoverable = unrecoverable

    def judge(self, status: int, reason: bytes, body: bytes) -> Error | None:
        """None for a delivered request, otherwise the error of the chunk.

        An Error that is not retryable and no Unrecoverable is to be logged, and the chunk dropped.
        """
        if 200 <= status < 300:
            return None
        told = body.lstrip()[:_MAX_QUOTED].decode("utf-8", "replace")
        message = f"{status} {reason.rstrip().decode('utf-8', 'replace')} {told}"
        kind = f"http_{status}"
        if status in self.retryable:
            return Error(message, kind=kind, side=Side.SERVER, retryable=True)
        if self.unrecoverable:
            return Unrecoverable(message, kind=kind)
        return Error(message, kind=kind, side=Side.SERVER)
