"""What the HTTP/1 codec tells its caller: heads, body bytes, the end of a message.

A body piece is a plain `bytes` object, so the events of one message are
`RequestHead | ResponseHead`, then any number of `bytes`, then one `EndOfMessage`.

A head keeps the bytes that came; its field lines have one lower-cased copy. Lists are made only when
somebody asks. A head is never changed after it was parsed: equal requests may share one.
"""

from __future__ import annotations

import re

_FIELD = re.compile(rb"([^\r\n:]*):[ \t]*([^\r\n]*)")

# RFC 9110 5.3 joins repeated fields with a comma; cookies are the exception (RFC 6265 5.4, RFC 9113 8.2.3).
_JOINERS = {b"cookie": b"; "}


class Fields:
    """The field lines of a head. Looking one up is a `find` in a lower-cased copy.

    text: the valid lines, each after a line feed (so it begins with one), the empty line at the end.
    """

    __slots__ = ("_listed", "low", "text")

    def __init__(self, lines: bytes) -> None:
        self.text = b"\n" + lines
        self.low = self.text.lower()
        self._listed: list[tuple[bytes, bytes]] | None = None

    def get(self, name: bytes) -> bytes | None:
        """Value of the field `name` (lower case), repeated lines joined as RFC 9110 5.3 says; None without one."""
        low = self.low
        key = b"\n" + name + b":"
        at = low.find(key)
        if at < 0:
            return None
        if low.find(key, at + 1) < 0:
            return self._value(at + len(key))
        return _JOINERS.get(name, b", ").join(self.get_all(name))

    def get_all(self, name: bytes) -> list[bytes]:
        """Every value of the field `name` (lower case), in order."""
        low = self.low
        key = b"\n" + name + b":"
        values = []
        at = low.find(key)
        while at >= 0:
            values.append(self._value(at + len(key)))
            at = low.find(key, at + 1)
        return values

    def items(self) -> list[tuple[bytes, bytes]]:
        """All fields in order, names in their original case. The list is shared: do not change it."""
        listed = self._listed
        if listed is None:
            found = _FIELD.findall(self.text, 1)
            listed = self._listed = [(name, value.rstrip(b" \t")) for name, value in found]
        return listed

    def _value(self, start: int) -> bytes:
        text = self.text
        return text[start : text.index(b"\n", start)].strip(b" \t\r")


class _Head:
    """What both kinds of head share.

    raw: every byte of the head as it came. length: bytes it took, empty lines before it included.
    """

    __slots__ = ("fields", "length", "raw")

    raw: bytes
    length: int
    fields: Fields

    @property
    def header_start(self) -> int:
        """Where in `raw` the first field line begins."""
        return self.raw.find(b"\n") + 1

    def header(self, name: bytes) -> bytes | None:
        """Value of the field `name` (lower case), repeated lines joined as RFC 9110 5.3 says; None without one."""
        return self.fields.get(name)

    def header_all(self, name: bytes) -> list[bytes]:
        """Every value of the field `name` (lower case), in order."""
        return self.fields.get_all(name)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """All valid fields in order, names in their original case. The list is shared: do not change it."""
        return self.fields.items()


class RequestFields(Fields):
    """The field lines of a request, and what they say about framing and routing (see RequestHead).

    Equal lines say the same in every request of the same version, so requests may share one object.
    """

    __slots__ = ("chunked", "content_length", "expect_continue", "host", "keep_alive")

    host: bytes
    content_length: int | None
    chunked: bool
    keep_alive: bool
    expect_continue: bool


class RequestHead(_Head):
    """The request line and the header fields of one request.

    method, target: as sent. For the absolute form (RFC 9112 3.2.2) target is the part from the path on.
    version: 9, 10 or 11. HTTP/1.2 and later minor versions count as 11; 9 is `GET /path` without a version.
    host: the host wanted, with its port when one was sent: from the absolute form, else from the Host
    field; b"" when an HTTP/1.0 client names none. shape: `raw`, or what is the same in heads that differ in nothing
    but the size of the body (see shapes.py).
    """

    __slots__ = ("host", "method", "shape", "target", "version")

    fields: RequestFields
    shape: bytes
    method: bytes
    target: bytes
    version: int
    host: bytes

    @property
    def content_length(self) -> int | None:
        """Bytes of the body, None without the field."""
        return self.fields.content_length

    @property
    def chunked(self) -> bool:
        """The body has chunked framing."""
        return self.fields.chunked

    @property
    def keep_alive(self) -> bool:
        """The client wants the connection to stay open."""
        return self.fields.keep_alive

    @property
    def expect_continue(self) -> bool:
        """The client waits for a 100 answer before it sends the body."""
        return self.fields.expect_continue

    @classmethod
    def partial(cls, raw: bytes) -> RequestHead:
        """A stand-in for a head that could not be parsed: raw bytes only, so that logs can show them."""
        head = cls.__new__(cls)
        words = raw.partition(b"\n")[0].split()
        head.raw = head.shape = raw
        head.length = len(raw)
        head.fields = fields = RequestFields(b"\r\n")
        fields.host = head.host = b""
        fields.content_length = None
        fields.chunked = fields.keep_alive = fields.expect_continue = False
        head.method = words[0] if len(words) > 1 and words[0].isalpha() else b""
        head.target = words[1] if len(words) > 1 else b""
        head.version = 11
        return head

    @property
    def request_line(self) -> bytes:
        """The request line as sent, without its line end."""
        return self.raw.partition(b"\n")[0].rstrip(b"\r")

    def __repr__(self) -> str:
        return f"<RequestHead {self.method!r} {self.target[:80]!r} {self.version}>"


class ResponseHead(_Head):
    """The status line and the header fields of one response.

    version: 10 or 11. status: 100 to 999. reason: may be empty.
    content_length: as sent, None without the field; chunked: the body has chunked framing.
    bodyless: no body follows whatever the fields say (RFC 9112 6.3: HEAD, 1xx, 204, 304).
    until_close: the body ends with the connection. keep_alive: the connection may carry another request
    once the message was read to its end.
    """

    __slots__ = (
        "bodyless",
        "chunked",
        "content_length",
        "keep_alive",
        "reason",
        "status",
        "until_close",
        "version",
    )

    status: int
    reason: bytes
    version: int
    content_length: int | None
    chunked: bool
    bodyless: bool
    until_close: bool
    keep_alive: bool

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status} {self.reason!r}>"


class EndOfMessage:
    """The message is whole. trailers: the trailer fields (chunked framing only), framing fields left out."""

    __slots__ = ("trailers",)

    def __init__(self, trailers: list[tuple[bytes, bytes]] | None = None) -> None:
        self.trailers: list[tuple[bytes, bytes]] = trailers or []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EndOfMessage) and other.trailers == self.trailers

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    def __repr__(self) -> str:
        return f"<EndOfMessage {self.trailers!r}>"


Event = RequestHead | ResponseHead | bytes | EndOfMessage
