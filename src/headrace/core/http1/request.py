"""Request heads: bytes -> RequestHead.

A whole head in one buffer takes one regular expression for the request line and one for the field
lines; the fields that decide framing are then looked up in a lower-cased copy. Clients repeat themselves,
so small bounded tables find, by their bytes, whole heads that were seen before, field lines that were seen
before (the same client, another target), and heads that differ in their Content-Length only (shapes.py).
Everything else (a head in pieces, a line that is dropped or refused, a head larger than one buffer, HTTP/0.9,
the absolute form) is walked line by line by `HeadScan`, which also knows the exact fault. All ways end in the
same checks.

Rules: RFC 9112, with nginx's leniency where two readers cannot differ (bare LF as a line end, empty lines
before the request, invalid field names dropped: ignore_invalid_headers, underscores_in_headers), and
without it where they can (Host, Content-Length, Transfer-Encoding, bare CR, NUL, folded lines).
"""

from __future__ import annotations

import re

from headrace.core.http1.events import RequestFields, RequestHead
from headrace.core.http1.shapes import Shapes
from headrace.errors import HttpError

_TARGET = rb"[^\x00-\x20\x7f]"
_VALUE = rb"[^\r\n\x00]*+"
_LINE = re.compile(rb"([A-Z_-]+) +(" + _TARGET + rb"+)(?: +HTTP/([0-9]+)\.([0-9]+))? *\r?\n")
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)([^#]*)")
_DROPPED = re.compile(rb"[^\x00-\x20\x7f:]+(?::" + _VALUE + rb")?\r?\n")
_EMPTY_LINES = re.compile(rb"(?:\r?\n)*")
_BAD_BYTE = re.compile(rb"\x00|\r[^\n]")
_METHOD_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_-")
# A name as nginx takes it, without what a URI could be cut at, and a port of 16 bits.
_HOST = re.compile(
    rb"(?:\[[0-9A-Za-z:.!$&'()*+,;=_~-]+\]|(?!\.(?::|\Z))[^\x00-\x20\x7f/:?#@\[\\\]]+)(?::([0-9]{0,5}))?"
)
_REFUSED_METHODS = frozenset({b"CONNECT", b"TRACE"})
_LENGTH = re.compile(rb"[0-9]{1,18}")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})|%00")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")

_P = ord("P")  # POST, PUT, PATCH, ...: methods with a body
_SEEN_LIMIT = 128  # heads, and blocks of field lines per version, that are remembered
_SEEN_BYTES = 1536  # none longer than this: together they stay below a megabyte


class HeadRules:
    """The limits and switches of one kind of listener, compiled once (nginx's directive names).

    header_buffer: client_header_buffer_size; large: large_client_header_buffers (number, size): the
    request line and each field line must fit one buffer, all of them together the buffers there are.
    """

    __slots__ = (
        "block",
        "buffers",
        "field",
        "first_buffer",
        "heads",
        "ignore_invalid",
        "line",
        "max_headers",
        "quick",
        "recent",
        "seen",
        "seen_10",
        "shapes",
        "size",
    )

    def __init__(
        self,
        *,
        header_buffer: int = 1024,
        large: tuple[int, int] = (4, 8192),
        max_headers: int = 1000,
        ignore_invalid: bool = True,
        underscores: bool = False,
    ) -> None:
        name = rb"[A-Za-z0-9_-]++" if underscores else rb"[A-Za-z0-9-]++"
        line = name + rb":" + _VALUE + rb"\r?\n"
        self.field = re.compile(line)
        self.block = re.compile(rb"(?:" + line + rb")*+\r?\n")
        self.line = re.compile(rb"([A-Z_-]+) +(/" + _TARGET + rb"*+) +HTTP/1\.([01]) *\r?\n")
        self.heads: dict[bytes, RequestHead] = {}
        self.recent: RequestHead | None = None  # the last one that was found by its bytes
        self.shapes = Shapes()
        self.seen: dict[bytes, RequestFields] = {}
        self.seen_10: dict[bytes, RequestFields] = {}
        self.first_buffer = header_buffer
        self.buffers, self.size = large
        self.max_headers = max_headers
        self.ignore_invalid = ignore_invalid
        # A head of this size fits whatever its lines are: a field line has three bytes at least.
        self.quick = min(self.size, 3 * max_headers)


class HeadScan:
    """Walks a head line by line; remembers where it was, so that a head in many pieces is walked once.

    The outcome does not depend on how the bytes were cut: a fault is raised for the first line that has
    one, a line that is still growing included (too long, a bare CR, a NUL).
    """

    __slots__ = ("checked", "count", "kept", "large", "line", "parts", "room", "skipped", "start")

    def __init__(self, at: int, rules: HeadRules) -> None:
        self.start = -1
        self.line = at
        self.checked = at  # no fault and no line end up to here
        self.skipped = 0
        self.count = 0
        self.large = 0
        self.room = rules.first_buffer
        self.parts: tuple[bytes, bytes, int, bytes | None] | None = None
        self.kept: list[bytes] = []

    def advance(self, data: bytes, rules: HeadRules) -> int:
        """End of the head in `data`, or -1 when more must come. Raises HttpError: 400, 405, 414, 431, 505."""
        if self.start < 0 and not self._begin(data, rules):
            return -1
        while True:
            line = self.line
            fresh = max(line, self.checked - 1)  # a CR may be waiting for what follows it
            newline = data.find(b"\n", fresh)
            end = newline + 1 if newline >= 0 else len(data)
            if _BAD_BYTE.search(data, fresh, min(end, line + rules.size)):
                raise _invalid("client sent invalid request line" if self.parts is None else _NAMELESS)
            if end - line > rules.size:
                raise self._too_long(data, rules)
            if newline < 0:
                self.checked = end
                return -1
            self._pack(end - line, rules)
            self.line = end
            if self.parts is None:
                self.parts = parse_request_line(data[line:end])
                if self.parts[2] == 9:
                    return end
            elif not self._field(data, line, end, rules):
                return end

    def _begin(self, data: bytes, rules: HeadRules) -> bool:
        """Skip empty lines (RFC 9112 2.2) and look at the first byte."""
        match = _EMPTY_LINES.match(data, self.line)
        assert match is not None
        start = match.end()
        self.skipped += start - self.line
        self.line = start
        if self.skipped > rules.size:
            raise _invalid("client sent only empty lines")
        rest = len(data) - start
        if not rest or (data[start] == 13 and rest == 1):
            return False
        if data[start] not in _METHOD_BYTES:
            raise _invalid("client sent invalid method")
        self.start = start
        return True

    def _field(self, data: bytes, line: int, end: int, rules: HeadRules) -> bool:
        """Take one field line; False for the empty line."""
        if end - line <= 2 and data[line] in b"\r\n":
            return False
        self.count += 1
        if self.count > rules.max_headers:
            raise HttpError(431, "client sent too many header lines")
        if rules.field.fullmatch(data, line, end):
            self.kept.append(data[line:end])
            return True
        if not (rules.ignore_invalid and _DROPPED.fullmatch(data, line, end)):
            raise _invalid(f'client sent invalid header line: "{show(data[line:end])}"')
        return True

    def _pack(self, length: int, rules: HeadRules) -> None:
        """A line goes whole into the buffer that has room for it, else into the next one."""
        if length > self.room:
            self.large += 1
            if self.large > rules.buffers:
                raise HttpError(431, "client sent too large header: all header buffers are used")
            self.room = rules.size
        self.room -= length

    def _too_long(self, data: bytes, rules: HeadRules) -> HttpError:
        if self.parts is None:
            return HttpError(414, f"client sent too long URI: more than {rules.size} bytes")
        name = show(data[self.line : self.line + 64].partition(b":")[0])
        return HttpError(431, f'client sent too long header line: "{name}", more than {rules.size} bytes')


_NAMELESS = "client sent invalid header line: bare CR or NUL"


def show(data: bytes) -> str:
    """Bytes of a client as text for a log line."""
    return data[:256].decode("latin-1").rstrip("\r\n").encode("unicode_escape").decode()


def _invalid(reason: str) -> HttpError:
    return HttpError(400, reason)


def parse_request_line(line: bytes) -> tuple[bytes, bytes, int, bytes | None]:
    """(method, target in origin form, version 9|10|11, authority of the absolute form or None).

    Raises HttpError 400 or 505.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise _invalid("client sent invalid request line")
    method, target, major, minor = match.groups()
    authority = None
    if target[0] != 47:
        absolute = _ABSOLUTE.match(target)
        if absolute is None:
            raise _invalid("client sent invalid request target")
        authority = absolute[1]
        _check_host(authority)
        target = absolute[2] if absolute[2][:1] == b"/" else b"/" + absolute[2]
    if major is None:
        if method != b"GET":
            raise _invalid("client sent HTTP/0.9 request with another method than GET")
        return method, target, 9, authority
    if len(major) != 1 or len(minor) != 1 or major == b"0":
        raise _invalid("client sent invalid version")
    if major != b"1":
        raise HttpError(505, "client sent unsupported version")
    return method, target, 11 if minor != b"0" else 10, authority


def check_target(target: bytes) -> None:
    """Refuse a path with a broken escape, an escaped NUL, or one that climbs above the root (400)."""
    path = target.partition(b"?")[0].partition(b"#")[0]
    if _BAD_ESCAPE.search(path):
        raise _invalid("client sent invalid escape in the request target")
    if b"%" in path:
        path = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), path)
    depth = 0
    for segment in path[1:].split(b"/"):
        if segment == b"..":
            depth -= 1
            if depth < 0:
                raise _invalid("client sent a request target above the root")
        elif segment != b".":
            depth += 1


def parse_request_head(data: bytes, at: int, rules: HeadRules, scan: HeadScan | None = None) -> RequestHead | None:
    """Parse the head that begins at `at`; None when it is not complete and nothing is wrong so far.

    scan: the walker that saw the beginning of the same head (its offsets are those of `data`). Raises
    HttpError: 400, 405, 414, 431 (the head is too large), 501 (unknown transfer coding), 505.
    """
    if scan is None and (head := rules.recent) is not None and data.startswith(head.raw, at):
        return head
    if scan is None and (end := data.find(b"\r\n\r\n", at, at + rules.quick) + 4) > 4:
        raw = data[at:end]
        head = rules.heads.get(raw)
        posted = raw[0] == _P
        if head is None and posted and (head := rules.shapes.find(raw)) is not None and len(rules.heads) < _SEEN_LIMIT:
            rules.heads[raw] = head
        if head is not None:
            rules.recent = head
            return head
        match = rules.line.match(raw)
        # A lone line feed may have ended the head before the place that was found: then it does not match.
        if match is not None:
            method, target, minor = match.groups()
            fields = _fields_of(raw, match.end(), 11 if minor == b"1" else 10, rules)
            if fields is not None:
                head = RequestHead()
                head.method = method
                head.target = target
                head.version = 11 if minor == b"1" else 10
                head.fields = fields
                head.host = fields.host
                head.raw = head.shape = raw
                head.length = len(raw)
                _check(head)
                if head.length <= _SEEN_BYTES:
                    if len(rules.heads) >= _SEEN_LIMIT:
                        rules.heads.clear()
                    rules.heads[raw] = rules.recent = head
                    if posted:
                        rules.shapes.add(head)
                return head
    if scan is None:
        scan = HeadScan(at, rules)
    end = scan.advance(data, rules)
    if end < 0:
        return None
    assert scan.parts is not None
    head = RequestHead()
    head.method, head.target, head.version, host = scan.parts
    head.fields = read_fields(b"".join(scan.kept) + b"\r\n", head.version)
    head.host = head.fields.host if host is None else host
    head.raw = head.shape = data[scan.start : end]
    head.length = end - at
    _check(head)
    return head


def _fields_of(raw: bytes, start: int, version: int, rules: HeadRules) -> RequestFields | None:
    """The field lines of a whole head, from its table or read; None when they need a closer look."""
    seen = rules.seen if version == 11 else rules.seen_10
    block = raw[start:]
    fields = seen.get(block)
    if fields is None and rules.block.fullmatch(block):
        fields = read_fields(block, version)
        if len(block) <= _SEEN_BYTES:
            if len(seen) >= _SEEN_LIMIT:
                seen.clear()
            seen[block] = fields
    return fields


def _check(head: RequestHead) -> None:
    """Refuse what the grammar allows and we do not."""
    target = head.target
    if target.find(b"%") >= 0 or target.find(b"/.") >= 0:
        check_target(target)
    if head.method in _REFUSED_METHODS:
        raise HttpError(405, f"client sent {head.method.decode()} method")


def read_fields(block: bytes, version: int) -> RequestFields:
    """What valid field lines say. Raises HttpError 400, 501."""
    fields = RequestFields(block)
    low = fields.low
    hosts = fields.get_all(b"host")
    if len(hosts) == 1:
        _check_host(hosts[0])
    elif hosts:
        raise _invalid('client sent duplicate header line: "Host"')
    elif version == 11:
        raise _invalid('client sent HTTP/1.1 request without "Host" header')
    fields.host = hosts[0] if hosts else b""
    fields.content_length = None
    fields.chunked = False
    if b"\ncontent-length:" in low or b"\ntransfer-encoding:" in low:
        _set_framing(fields, version)
    fields.keep_alive = _wants_keep_alive(fields, version) if b"\nconnection:" in low else version == 11
    fields.expect_continue = (
        version == 11
        and b"\nexpect:" in low
        and (fields.chunked or bool(fields.content_length))
        and (fields.get(b"expect") or b"").lower() == b"100-continue"
    )
    return fields


def _check_host(value: bytes) -> None:
    match = _HOST.fullmatch(value)
    if match is None or b".." in value or int(match[1] or 0) > 65535:
        raise _invalid(f'client sent invalid host header: "{show(value)}"')


def _wants_keep_alive(fields: RequestFields, version: int) -> bool:
    tokens = [token.strip(b" \t").lower() for token in (fields.get(b"connection") or b"").split(b",")]
    return b"close" not in tokens and (version == 11 or b"keep-alive" in tokens)


def _set_framing(fields: RequestFields, version: int) -> None:
    """RFC 9112 6.3 for requests, every doubt an error."""
    lengths = fields.get_all(b"content-length")
    codings = fields.get_all(b"transfer-encoding")
    if codings:
        if version != 11:
            raise _invalid('client sent HTTP/1.0 request with "Transfer-Encoding" header')
        if lengths:
            raise _invalid('client sent "Content-Length" and "Transfer-Encoding" headers at the same time')
        if len(codings) > 1:
            raise _invalid('client sent duplicate header line: "Transfer-Encoding"')
        if codings[0].lower() != b"chunked":
            raise HttpError(501, f'client sent unknown "Transfer-Encoding": "{show(codings[0])}"')
        fields.chunked = True
        return
    if len(lengths) > 1:
        raise _invalid('client sent duplicate header line: "Content-Length"')
    if not _LENGTH.fullmatch(lengths[0]):
        raise _invalid('client sent invalid "Content-Length" header')
    fields.content_length = int(lengths[0])
