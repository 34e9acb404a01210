"""Heads that differ in their Content-Length only.

A client that posts bodies of many sizes sends the same head again and again but for a few digits. The shape of a head
is the head without them: what was found out about one holds for every other of its shape, so such a head costs a
lookup and a number.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.core.http1.events import RequestFields, RequestHead

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,15})\r\n")
_LIMIT: Final = 128


class Shapes:
    """One head of each shape; heads come from the parser, whole and without a fault."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHead] = {}

    def find(self, raw: bytes) -> RequestHead | None:
        """The head of these bytes, when one of its shape is known."""
        found = _LENGTH.search(raw)
        if found is None:
            return None
        start, end = found.span(1)
        like = self._known.get(raw[:start] + raw[end:])
        if like is None:
            return None
        head = RequestHead()
        head.method = like.method
        head.target = like.target
        head.version = like.version
        head.host = like.host
        head.shape = like.shape
        head.raw = raw
        head.length = len(raw)
        head.fields = fields = RequestFields(raw[like.header_start :])
        fields.host = like.fields.host
        fields.content_length = int(raw[start:end])
        fields.chunked = False
        fields.keep_alive = like.fields.keep_alive
        fields.expect_continue = False
        return head

    def add(self, head: RequestHead) -> None:
        """Find out the shape of a head, and remember it. One that asks for a word before its body is not remembered."""
        found = _LENGTH.search(head.raw)
        if found is None:
            return
        start, end = found.span(1)
        head.shape = head.raw[:start] + head.raw[end:]
        if b"\nexpect:" in head.fields.low:
            return
        if len(self._known) >= _LIMIT:
            self._known.clear()
        self._known[head.shape] = head
