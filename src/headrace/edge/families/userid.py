"""userid: a cookie that tells clients apart.

The value is 16 bytes: the service, the time, process and start, a sequence; written as base64 in the cookie and in
hexadecimal in `$uid_got` and `$uid_set`. https://nginx.org/en/docs/http/ngx_http_userid_module.html
"""

from __future__ import annotations

import base64
import itertools
import os
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import log
from headrace.edge.connection import local_address
from headrace.edge.families.common import HSL, MANY, BaseFamily, parse_time, spec, table
from headrace.edge.times import http_date
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

FIRST: Final = 0x03030302
MAX_EXPIRES: Final = 2145916555
FLAGS: Final = {
    "secure": b"; secure",
    "httponly": b"; httponly",
    "samesite=strict": b"; samesite=strict",
    "samesite=lax": b"; samesite=lax",
    "samesite=none": b"; samesite=none",
}
_sequence = itertools.count(FIRST, 0x100)
_started = int(time.time())


@dataclass(frozen=True)
class Userid:
    """What holds for one location. mark: the last character of a marked cookie, b"" without marks."""

    kind: str
    name: bytes
    domain: bytes
    path: bytes
    p3p: bytes
    mark: bytes
    expires: float | str | None
    service: int | None
    flags: bytes

    def header(self, request: Request) -> None:
        """The header filter: give a client that has none a cookie."""
        if request.parent is not None or self.kind not in ("on", "v1"):
            return
        got = self.got(request)
        if got is not None and self.marked(request) and not _reset(request):
            return
        value = self.value(request, got)
        text = base64.b64encode(value)
        if self.mark:
            text = text[:22] + self.mark + b"="
        cookie = self.name + b"=" + text
        if self.expires == "max":
            cookie += b"; expires=Thu, 31-Dec-37 23:55:55 GMT"
        elif self.expires is not None:
            date = http_date(min(time.time() + float(self.expires), MAX_EXPIRES))
            cookie += b"; expires=" + date[:7] + b"-" + date[8:11] + b"-" + date[14:]
        if self.domain:
            cookie += b"; domain=" + self.domain
        if self.path:
            cookie += b"; path=" + self.path
        cookie += self.flags
        request.headers_out.add(b"Set-Cookie", cookie)
        if self.p3p:
            request.headers_out.add(b"P3P", self.p3p)

    def got(self, request: Request) -> bytes | None:
        """The 16 bytes of the client's cookie, None without a valid one."""
        if self.kind == "off":
            return None
        known = request.get_slot(b"userid got")
        if known is not None:
            return known or None
        found = _cookie(request, self.name)
        value = b""
        if found is not None:
            if len(found) < 22:
                request.log_error(log.ERR, b'client sent too short userid cookie "%b"' % found)
            else:
                mark = found[22:23]
                try:
                    value = base64.b64decode(found[:22] + b"==", validate=True)
                except ValueError:
                    request.log_error(log.ERR, b'client sent invalid userid cookie "%b"' % found)
                request.set_slot(b"userid mark", mark)
        request.set_slot(b"userid got", value)
        return value or None

    def marked(self, request: Request) -> bool:
        """Whether the client's cookie has the mark that it should have."""
        return not self.mark or request.get_slot(b"userid mark") == self.mark

    def value(self, request: Request, got: bytes | None) -> bytes:
        """The 16 bytes to set: those of the client, or new ones."""
        known = request.get_slot(b"userid set")
        if known is not None:
            return known
        if got is not None and not _reset(request):
            value = got
        else:
            now = int(time.time())
            if self.kind == "v1":
                service = self.service if self.service is not None else 0
                value = struct.pack("=4I", service, now, os.getpid(), next(_sequence) & 0xFFFFFFFF)
            else:
                service = self.service if self.service is not None else _address(request)
                mixed = (_started ^ os.getpid() << 16) & 0xFFFFFFFF
                value = struct.pack("!4I", service & 0xFFFFFFFF, now, mixed, next(_sequence) & 0xFFFFFFFF)
        request.set_slot(b"userid set", value)
        return value


def _reset(request: Request) -> bool:
    """`$uid_reset` asks for a new value; with "log" the old one is logged."""
    asked = request.var(b"uid_reset")
    if asked == b"log":
        request.log_error(log.NOTICE, b'userid cookie "%b" was reset' % (_uid_got(request) or b""))
    return asked not in (None, b"", b"0")


def _address(request: Request) -> int:
    """Our address as a number, the last four bytes of a longer one."""
    local = local_address(request.exchange.conn)
    if not isinstance(local, tuple):
        return 0
    try:
        family = socket.AF_INET6 if ":" in str(local[0]) else socket.AF_INET
        return int.from_bytes(socket.inet_pton(family, str(local[0]))[-4:], "big")
    except OSError:
        return 0x7F000001


def _cookie(request: Request, name: bytes) -> bytes | None:
    for field, value in request.headers_in():
        if field.lower() == b"cookie":
            for piece in value.split(b";"):
                found, equals, text = piece.strip().partition(b"=")
                if equals and found.rstrip().lower() == name.lower():
                    return text.lstrip()
    return None


class UseridFamily(BaseFamily):
    """userid and what it may be told."""

    specs = table(
        spec("userid", HSL, 1),
        spec("userid_service", HSL, 1),
        spec("userid_name", HSL, 1),
        spec("userid_domain", HSL, 1),
        spec("userid_path", HSL, 1),
        spec("userid_expires", HSL, 1),
        spec("userid_flags", HSL, 1, MANY),
        spec("userid_p3p", HSL, 1),
        spec("userid_mark", HSL, 1),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        _define(scope)
        name, text = directive.name, directive.args[0]
        value: object = to_bytes(text)
        if name == "userid":
            if text not in ("off", "log", "v1", "on"):
                raise ConfError(f'invalid value "{text}"', directive.place)
            value = text
        elif name == "userid_service":
            if not text.isdigit():
                raise ConfError('"userid_service" directive invalid number', directive.place)
            value = int(text)
        elif name == "userid_expires":
            value = None if text == "off" else text if text == "max" else parse_time(text)
            if value is None and text != "off":
                raise ConfError("invalid value", directive.place)
        elif name in ("userid_domain", "userid_p3p") and text == "none":
            value = b""
        elif name == "userid_flags":
            value = _flags(directive)
        elif name == "userid_mark":
            if text != "off" and (len(text) != 1 or not (text.isalnum() or text == "=")):
                raise ConfError('value must be "off" or a single letter, digit or "="', directive.place)
            value = b"" if text == "off" else to_bytes(text)
        scope.set_once(directive, value)
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter where a cookie is set."""
        get = scope.get
        made = Userid(
            kind=get("userid", "off"),
            name=get("userid_name", b"uid"),
            domain=get("userid_domain", b""),
            path=get("userid_path", b"/"),
            p3p=get("userid_p3p", b""),
            mark=get("userid_mark", b""),
            expires=get("userid_expires"),
            service=get("userid_service"),
            flags=get("userid_flags", b""),
        )
        if made.kind != "off":
            scope.settings["userid settings"] = made
        if made.kind in ("on", "v1"):
            location.add_header_filter("userid", made.header)


def _flags(directive: Directive) -> bytes:
    if directive.args == ("off",):
        return b""
    unknown = [word for word in directive.args if word not in FLAGS]
    if unknown:
        raise ConfError(f'invalid parameter "{unknown[0]}"', directive.place)
    return b"".join(text for word, text in FLAGS.items() if word in directive.args)


def _define(scope: Scope) -> None:
    variables = scope.build.variables
    variables.define("uid_got", _uid_got)
    variables.define("uid_set", _uid_set)
    variables.declare("uid_reset")


def _settings(request: Request) -> Userid | None:
    found: Userid | None = request.location.settings.get("userid settings")
    return found


def _shown(made: Userid, value: bytes) -> bytes:
    return made.name + b"=" + b"%08X%08X%08X%08X" % struct.unpack("=4I", value)


def _uid_got(request: Request) -> bytes | None:
    made = _settings(request)
    got = None if made is None else made.got(request)
    return None if made is None or got is None else _shown(made, got)


def _uid_set(request: Request) -> bytes | None:
    made = _settings(request)
    if made is None or made.kind not in ("on", "v1"):
        return None
    got = made.got(request)
    if got is not None and made.marked(request) and not _reset(request):
        return None
    return _shown(made, made.value(request, got))
