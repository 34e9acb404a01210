"""What a body may be, looked at before it is decoded: few bytes must not become very many objects.

- Expansion: past FREE bytes a compressed body may be at most RATIO times what it was. Text of logs shrinks to a
  twentieth; what shrinks to a thousandth is made for it.
- JSON: a record may hold VALUES keys and elements, a body OBJECTS objects and arrays. Where a fast look cannot
  exclude more, strings are told from structure.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import HttpError

FREE: Final = 8 << 20
"""Bytes that a body may always have, the size of a chunk in memory: what an http output sends is never refused."""
RATIO: Final = 200
VALUES: Final = 200_000
OBJECTS: Final = 1_000_000

LOOKED_AT: Final = 1 << 20
"""Smaller bodies cannot become much."""
_MANY: Final = 1000
"""More commas than this for each object are looked at more closely."""
_COMMA: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|,', re.DOTALL)


def check_expansion(compressed: int, expanded: int) -> None:
    """Raise HttpError 413 when so many bytes must not have become so many."""
    if expanded > FREE and expanded > RATIO * compressed:
        raise HttpError(413, f"the body expands to more than {RATIO} times its size")


def check_json(body: bytes) -> None:
    """Raise HttpError 413 for a text that holds too much."""
    if len(body) < LOOKED_AT:
        return
    objects = body.count(b"{")
    if objects + body.count(b"[") > OBJECTS:
        raise HttpError(413, f"the body holds more than {OBJECTS} objects and arrays", close=False)
    commas = body.count(b",")
    if commas > VALUES and commas > _MANY * objects and _commas_outside(body, VALUES):
        raise HttpError(413, f"a record holds more than {VALUES} values", close=False)


def _commas_outside(body: bytes, limit: int) -> bool:
    """Whether more than `limit` commas stand outside of strings."""
    for found in _COMMA.finditer(body):
        if found.end() - found.start() == 1 and body[found.start()] == 0x2C:
            limit -= 1
            if limit < 0:
                return True
    return False
