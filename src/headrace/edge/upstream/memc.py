"""The memc module's side of memcached: every command of the text protocol, one a request. No I/O.

https://github.com/openresty/memc-nginx-module
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.core.http1.parse import parse_response_head
from headrace.edge.log import ERR
from headrace.edge.times import http_date
from headrace.edge.upstream.ask import Ask, file_size
from headrace.edge.upstream.memcached import MemcachedReader, escape_key
from headrace.edge.upstream.reply import PREMATURE, BadReply, Reading
from headrace.edge.upstream.routing import PassService

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.request import Request
    from headrace.edge.upstream.service import Route

STORAGE: Final = frozenset((b"set", b"add", b"replace", b"append", b"prepend"))
COUNTING: Final = frozenset((b"incr", b"decr"))
COMMANDS: Final = STORAGE | COUNTING | {b"get", b"delete", b"flush_all", b"stats", b"version"}
_DEFAULTS: Final = {b"GET": b"get", b"HEAD": b"get", b"POST": b"add", b"PUT": b"set", b"DELETE": b"delete"}
_KEYED: Final = COMMANDS - {b"flush_all", b"stats", b"version"}
_FAULT: Final = rb"(?P<fault>ERROR|(?:CLIENT|SERVER)_ERROR [^\r\n]*)\r\n"
_MISSING: Final = rb"(?P<missing>NOT_FOUND)\r\n|"
_COUNTED: Final = re.compile(rb"(?P<made>[0-9]+) *\r\n|" + _MISSING + _FAULT)
_STORED: Final = re.compile(rb"(?P<made>STORED)\r\n|(?:NOT_STORED|EXISTS)\r\n|" + _MISSING + _FAULT)
ANSWERS: Final = {
    **dict.fromkeys(STORAGE, _STORED),
    **dict.fromkeys(COUNTING, _COUNTED),
    b"delete": re.compile(rb"DELETED\r\n|" + _MISSING + _FAULT),
    b"flush_all": re.compile(rb"OK\r\n|" + _FAULT),
    b"version": re.compile(rb"VERSION [^\r\n]+\r\n|" + _FAULT),
    b"stats": re.compile(rb"(?:STAT [^\r\n]+\r\n)*END\r\n|" + _FAULT),
}
"""Command -> its whole answers."""
_STATUS: Final = {"made": 201, "missing": 404, "fault": 502, None: 200}
_MAX_UINT32: Final = 10
_MAX_UINT64: Final = 20


class SimpleReader(Reading):
    """See reply.Reader: an answer that is the body as it is. limit: bytes it may have."""

    def __init__(self, command: bytes, limit: int) -> None:
        super().__init__()
        self._command = command
        self._pattern = ANSWERS[command]
        self._limit = limit
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """See reply.Reader."""
        data = self._buffer = self._buffer + data
        found = self._pattern.match(data)
        if found is not None:
            answer = found.group()
            self.keep_alive = len(answer) == len(data)
            return self._whole(_STATUS[found.lastgroup], answer)
        if not data.endswith(b"\n") or (self._command == b"stats" and data.startswith(b"STAT ")):
            if len(data) >= self._limit:
                raise BadReply("upstream sent too big header")
            return []
        text = b'memcached sent invalid response for command "%b" at pos 0: %b' % (self._command, data.rstrip())
        self.notes.append((ERR, text))
        return self._whole(502, b"")

    def _whole(self, status: int, body: bytes) -> list[bytes]:
        raw = b"HTTP/1.1 %d Answer\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self.head = parse_response_head(raw, b"GET")
        self.length = len(body)
        self.done = True
        return [body] if body else []

    def eof(self) -> list[bytes]:
        """See reply.Reader."""
        raise BadReply(PREMATURE, premature=True)


class GetReader(MemcachedReader):
    """See reply.Reader: the answer to `get`; its flags become $memc_flags, and a date where that is wanted."""

    def __init__(self, request: Request, key: bytes, limit: int, *, dated: bool) -> None:
        super().__init__(key, 0, limit)
        self._request = request
        self._dated = dated

    def fields(self, flags: bytes) -> bytes:
        """Header fields that the flags stand for."""
        self._request.set_slot(b"memc_flags", flags)
        if not self._dated:
            return b""
        return b"Last-Modified: %b\r\n" % http_date(int(flags))


class MemcService(PassService):
    """A location with memc_pass. allowed: commands; dated: the flags are the time of the value's last change."""

    scheme = "memcached"
    schemes = {}  # noqa: RUF012 - an empty table
    allowed: frozenset[bytes] = COMMANDS
    dated = False

    def handle(self, request: Request) -> Awaitable[int | None] | int:
        """The content handler."""
        refusal, status = self._refusal(request)
        if refusal:
            request.log_error(ERR, refusal)
            return status
        if request.content_type is None:
            request.content_type = request.location.content_type_of(request.uri)
        return super().handle(request)

    def _refusal(self, request: Request) -> tuple[bytes, int]:
        get = request.get_slot
        command = get(b"memc_cmd") or _DEFAULTS.get(request.method)
        if command is None:
            return b"ngx_memc: $memc_cmd variable not found for HTTP %b requests" % request.method, 400
        if command not in COMMANDS:
            return b'ngx_memc: unknown $memc_cmd "%b"' % command, 400
        request.set_slot(b"memc_cmd", command)
        if command not in self.allowed:
            return b'ngx_memc: memcached command "%b" not allowed' % command, 403
        for name, commands in ((b"memc_exptime", STORAGE | {b"flush_all", b"delete"}), (b"memc_flags", STORAGE)):
            value = get(name)
            if command in commands and value and not _number(value, _MAX_UINT32):
                return b'variable "$%b" takes invalid value: %b' % (name, value), 400
        if command in COUNTING:
            value = get(b"memc_value")
            if not value:
                return b'the "$memc_value" variable is required for command "%b"' % command, 400
            if not _number(value, _MAX_UINT64):
                return b'variable "$memc_value" is invalid for incr/decr: %b' % value, 400
        if command in _KEYED and not get(b"memc_key"):
            return b'the "$memc_key" variable is not set', 500
        return b"", 0

    def ask(self, request: Request, _route: Route, *, stream: bool) -> Ask:
        """See Service."""
        del stream
        get = request.get_slot
        command, key = get(b"memc_cmd") or b"", escape_key(get(b"memc_key") or b"")
        expires = get(b"memc_exptime") or b""
        if command in STORAGE:
            return self._storage(request, command, key, expires or b"0")
        words = [command]
        if command in _KEYED:
            words.append(key)
        if command in COUNTING:
            words.append(get(b"memc_value") or b"")
        elif expires and command in (b"delete", b"flush_all"):
            words.append(expires)
        return Ask(b"GET", key, head=b" ".join(words) + b"\r\n")

    @staticmethod
    def _storage(request: Request, command: bytes, key: bytes, expires: bytes) -> Ask:
        flags = request.get_slot(b"memc_flags") or b"0"
        value = request.get_slot(b"memc_value")
        ask = Ask(b"GET", key, tail=b"\r\n")
        if value is not None:
            ask.body, size = value, len(value)
        elif request.body_file is not None:
            ask.file, size = request.body_file, file_size(request.body_file)
        else:
            ask.body = request.body or b""
            size = len(ask.body)
        ask.head = b"%b %b %b %b %d\r\n" % (command, key, flags, expires, size)
        return ask

    def reader(self, request: Request, ask: Ask) -> GetReader | SimpleReader:
        """See Service."""
        command = request.get_slot(b"memc_cmd") or b""
        if command == b"get":
            return GetReader(request, ask.uri, self.settings.buffer_size, dated=self.dated)
        return SimpleReader(command, self.settings.buffer_size)


def _number(value: bytes, digits: int) -> bool:
    return value.isdigit() and len(value) <= digits
