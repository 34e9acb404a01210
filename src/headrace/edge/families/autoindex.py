"""autoindex, random_index: what a folder holds.

https://nginx.org/en/docs/http/ngx_http_autoindex_module.html, ngx_http_random_index_module.html
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.families.common import HSL, BaseFamily, flag, flag_of, spec, table
from headrace.edge.families.static import failed
from headrace.edge.times import http_date
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

NAME_WIDTH: Final = 50
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FORMATS: Final = ("html", "json", "jsonp", "xml")
_CALLBACK: Final = re.compile(rb"[A-Za-z0-9_$.]+")
_UNSAFE: Final = re.compile(rb'[\x00-\x20"#%&?;:<>\\^`{|}\x7f-\xff]')


@dataclass(frozen=True)
class Entry:
    """One name of a folder. kind: "directory", "file" or "other"; modified: seconds since the epoch; size: bytes."""

    name: bytes
    kind: str
    modified: float
    size: int


class AutoindexFamily(BaseFamily):
    """Lists of folders; a random file of one."""

    specs = table(
        flag("autoindex", HSL),
        spec("autoindex_format", HSL, 1),
        flag("autoindex_localtime", HSL),
        flag("autoindex_exact_size", HSL),
    )

    @staticmethod
    def apply(scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name == "autoindex_format":
            if directive.args[0] not in FORMATS:
                raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
            scope.set_once(directive, directive.args[0])
        else:
            scope.set_once(directive, flag_of(directive))
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Behind index, which comes first."""
        get = scope.get
        if get("autoindex", False):
            how = get("autoindex_format", "html")
            local, exact = get("autoindex_localtime", False), get("autoindex_exact_size", True)
            location.add(phases.CONTENT, _lister(how, local=local, exact=exact))


class RandomIndexFamily(BaseFamily):
    """A random file of a folder; comes before index."""

    specs = table(flag("random_index", ("location",)))

    @staticmethod
    def _do_random_index(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """See registry.Family."""
        if scope.get("random_index", False):
            location.add(phases.CONTENT, _choose)


def _choose(request: Request) -> int | None:
    if not request.uri.endswith(b"/") or request.method not in (b"GET", b"HEAD", b"POST"):
        return None
    path = request.location.path_of(request)
    try:
        with os.scandir(path) as found:
            names = [entry.name for entry in found if not entry.name.startswith(b".") and entry.is_file()]
    except OSError as error:
        return failed(request, "opendir", path, error)
    if not names:
        return None
    return request.internal_redirect(request.uri + random.choice(names), None)  # noqa: S311 - no secret


def _lister(how: str, *, local: bool, exact: bool) -> Handler:
    def show(request: Request) -> int | None:
        if not request.uri.endswith(b"/") or request.method not in (b"GET", b"HEAD"):
            return None
        path = request.location.path_of(request)
        try:
            entries = _read(path)
        except OSError as error:
            return failed(request, "opendir", path, error)
        request.discard_body()
        if how == "html":
            kind, text = b"text/html", _html(request, entries, local=local, exact=exact)
        elif how == "xml":
            kind, text = b"text/xml; charset=utf-8", _xml(entries)
        else:
            callback = request.var(b"arg_callback") if how == "jsonp" else None
            kind, text = b"application/json", _json(entries)
            if callback and _CALLBACK.fullmatch(callback):
                kind, text = b"application/javascript", b"/* callback */\r\n%b(%b);\r\n" % (callback, text[:-2])
        request.status, request.content_type = 200, kind
        request.send_header()
        if not request.header_only:
            request.output(text)
        request.finish()
        return phases.DONE

    return show


def _read(path: bytes) -> list[Entry]:
    entries = []
    with os.scandir(path) as found:
        for item in found:
            if item.name.startswith(b"."):
                continue
            try:
                info = item.stat()
            except OSError:
                try:
                    info = item.stat(follow_symlinks=False)
                except OSError:
                    continue
            mode = info.st_mode
            kind = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
            entries.append(Entry(item.name, kind, info.st_mtime, info.st_size))
    entries.sort(key=lambda entry: (entry.kind != "directory", entry.name))
    return entries


def _html(request: Request, entries: list[Entry], *, local: bool, exact: bool) -> bytes:
    title = b"Index of " + _escaped(request.uri)
    unicode = b"utf-8" in (request.location.charset or b"").lower()
    lines = [
        b"<html>\r\n<head><title>%b</title></head>\r\n<body>\r\n<h1>%b</h1><hr><pre>"
        b'<a href="../">../</a>\r\n' % (title, title)
    ]
    for entry in entries:
        slash = b"/" if entry.kind == "directory" else b""
        href = _UNSAFE.sub(lambda match: b"%%%02X" % match.group()[0], entry.name) + slash
        shown = entry.name.decode("utf-8", "surrogateescape") if unicode else entry.name.decode("latin-1")
        encoding = "utf-8" if unicode else "latin-1"
        if len(shown) > NAME_WIDTH:
            cut = shown[: NAME_WIDTH - 3].encode(encoding, "surrogateescape")
            text = _escaped(cut) + b"..&gt;</a>"
        else:
            length = len(shown)
            text = _escaped(entry.name)
            if slash and length < NAME_WIDTH:
                text, length = text + b"/", length + 1
            text += b"</a>" + b" " * (NAME_WIDTH - length)
        at = time.localtime(entry.modified) if local else time.gmtime(entry.modified)
        date = b"%02d-%b-%d %02d:%02d" % (at.tm_mday, MONTHS[at.tm_mon - 1].encode(), at.tm_year, at.tm_hour, at.tm_min)
        size = b"-".rjust(19 if exact else 7) if slash else b"%19d" % entry.size if exact else _rounded(entry.size)
        lines.append(b'<a href="%b">%b %b %b\r\n' % (href, text, date, size))
    lines.append(b"</pre><hr></body>\r\n</html>\r\n")
    return b"".join(lines)


def _escaped(text: bytes) -> bytes:
    return html.escape(text.decode("latin-1")).encode("latin-1").replace(b"&#x27;", b"'")


def _rounded(size: int) -> bytes:
    for limit, unit, letter in ((1 << 30, 1 << 30, b"G"), (1 << 20, 1 << 20, b"M"), (10_000, 1 << 10, b"K")):
        if size > limit - 1:
            return b"%6d%b" % (size // unit + (size % unit > unit // 2 - 1), letter)
    return b" %6d" % size


def _json(entries: list[Entry]) -> bytes:
    lines = []
    for entry in entries:
        name = json.dumps(entry.name.decode("utf-8", "surrogateescape"), ensure_ascii=False)
        line = b'{ "name":%b, "type":"%b", "mtime":"%b"' % (
            name.encode("utf-8", "surrogateescape"),
            entry.kind.encode(),
            http_date(entry.modified),
        )
        lines.append(line + (b', "size":%d }' % entry.size if entry.kind == "file" else b" }"))
    return b"[\r\n" + b",\r\n".join(lines) + b"\r\n]\r\n"


def _xml(entries: list[Entry]) -> bytes:
    lines = [b'<?xml version="1.0"?>\r\n<list>\r\n']
    for entry in entries:
        kind = entry.kind.encode()
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.modified)).encode()
        size = b' size="%d"' % entry.size if entry.kind == "file" else b""
        lines.append(b'<%b mtime="%b"%b>%b</%b>\r\n' % (kind, date, size, _escaped(entry.name), kind))
    return b"".join(lines) + b"</list>\r\n"
