"""One page on its way: what each of its commands does, and what waits for the answers of subrequests."""

from __future__ import annotations

import html
import re
import time
from typing import TYPE_CHECKING, Final

from headrace.edge import log
from headrace.edge.postpone import Postponed, postponed
from headrace.edge.ssi.language import Wrong, expand, holds
from headrace.edge.ssi.scan import Command, Scanner
from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise, unescape_redirect
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.edge.request import Request

DATE: Final = b"%A, %d-%b-%Y %H:%M:%S %Z"
ERROR: Final = b"[an error occurred while processing the directive]"
_UNSAFE: Final = re.compile(rb"""[\x00-\x20"%'<>\x7f-\xff]""")
_KNOWN: Final = {
    b"include": {b"virtual", b"file", b"wait", b"set", b"stub"},
    b"echo": {b"var", b"default", b"encoding"},
    b"set": {b"var", b"value"},
    b"config": {b"errmsg", b"timefmt"},
    b"if": {b"expr"},
    b"elif": {b"expr"},
    b"else": set(),
    b"endif": set(),
    b"block": {b"name"},
    b"endblock": set(),
}
_NEEDED: Final = {
    b"echo": {b"var"},
    b"set": {b"var", b"value"},
    b"if": {b"expr"},
    b"elif": {b"expr"},
    b"block": {b"name"},
}


class Shared:
    """What a page and those within it have in common: variables by name, blocks by name."""

    def __init__(self) -> None:
        self.variables: dict[bytes, bytes] = {}
        self.blocks: dict[bytes, list[bytes]] = {}


class Page:
    """The body filter of one answer. silent: errors show nothing. longest: bytes of a parameter."""

    def __init__(self, request: Request, shared: Shared, *, silent: bool, longest: int) -> None:
        self.request = request
        self.shared = shared
        self.parts: Postponed = postponed(request)
        self.error = b"" if silent else ERROR
        self.longest = longest
        self.time_format = DATE
        self.captures: tuple[bytes | None, ...] = ()
        self._names: dict[bytes, bytes | None] = {}
        self._scanner = Scanner()
        self._waiting = False
        self._branch: list[bool] = []
        """Of each open `if`, the innermost last: a branch has been chosen before."""
        self._shown: list[bool] = []
        self._block: list[bytes] | None = None

    def body(self, request: Request, data: bytes, last: bool) -> bytes:
        """The body filter."""
        del request
        self._scanner.feed(data, last=last)
        if self._waiting:
            return b""
        self._run()
        return b""

    def _run(self) -> None:
        for item in self._scanner:
            if isinstance(item, bytes):
                self._put(item)
            else:
                self._do(item)
            if self._waiting:
                return

    def _put(self, data: bytes) -> None:
        if not data or not all(self._shown):
            return
        if self._block is not None:
            self._block.append(data)
        else:
            self.parts.put(data)

    # commands

    def _do(self, command: Command) -> None:
        name = command.name
        if not all(self._shown) and name not in (b"if", b"elif", b"else", b"endif"):
            return
        known = _KNOWN.get(name)
        if known is None:
            self._fail(b'invalid SSI command: "%b"' % name)
            return
        given = {word for word, _ in command.words}
        wrong = given - known
        missing = _NEEDED.get(name, set()) - given
        too_long = [value for _, value in command.words if len(value) > self.longest]
        if wrong or missing or too_long:
            text = (
                b'invalid parameter "%b"' % wrong.pop()
                if wrong
                else b'mandatory parameter "%b" is absent' % (missing.pop() if missing else b"")
            )
            self._fail(b'%b in "%b" SSI command' % (b"too long parameter" if too_long else text, name))
            return
        try:
            getattr(self, "_do_" + name.decode())(command)
        except Wrong as error:
            self._fail(b'%b in "%b" SSI command' % (str(error).encode(), name))

    def _fail(self, message: bytes) -> None:
        self.request.log_error(log.ERR, message)
        self._put(self.error)

    def _do_echo(self, command: Command) -> None:
        name = command.get(b"var") or b""
        encoding = command.get(b"encoding") or b"entity"
        if encoding not in (b"none", b"url", b"entity"):
            raise Wrong(f'unknown encoding "{encoding.decode("latin-1")}"')
        value = self.lookup(name)
        if value is None:
            given = command.get(b"default")
            self._put(b"(none)" if given is None else given)
            return
        if encoding == b"url":
            value = _UNSAFE.sub(lambda match: b"%%%02X" % match.group()[0], value)
        elif encoding == b"entity":
            value = html.escape(value.decode("latin-1"), quote=False).replace('"', "&quot;").encode("latin-1")
        self._put(value)

    def _do_set(self, command: Command) -> None:
        self.shared.variables[command.get(b"var") or b""] = expand(command.get(b"value") or b"", self.lookup)

    def _do_config(self, command: Command) -> None:
        for name, value in command.words:
            if name == b"errmsg":
                self.error = value
            else:
                self.time_format = value

    def _do_if(self, command: Command) -> None:
        if not all(self._shown):
            self._branch.append(True)
            self._shown.append(False)
            return
        found = holds(command.get(b"expr") or b"", self.lookup, self._keep)
        self._branch.append(found)
        self._shown.append(found)

    def _do_elif(self, command: Command) -> None:
        if not self._branch:
            raise Wrong("no if before")
        if self._branch[-1]:
            self._shown[-1] = False
            return
        self._branch[-1] = self._shown[-1] = holds(command.get(b"expr") or b"", self.lookup, self._keep)

    def _do_else(self, _command: Command) -> None:
        if not self._branch:
            raise Wrong("no if before")
        self._shown[-1] = not self._branch[-1]
        self._branch[-1] = True

    def _do_endif(self, _command: Command) -> None:
        if self._branch:
            self._branch.pop()
            self._shown.pop()

    def _do_block(self, command: Command) -> None:
        self._block = self.shared.blocks[command.get(b"name") or b""] = []

    def _do_endblock(self, _command: Command) -> None:
        self._block = None

    def _do_include(self, command: Command) -> None:
        virtual, file = command.get(b"virtual"), command.get(b"file")
        if (virtual is None) is (file is None):
            raise Wrong("inclusion may be either virtual or file")
        target = expand(virtual if virtual is not None else file or b"", self.lookup)
        if not target.startswith((b"/", b"@")):
            target = self.request.uri[: self.request.uri.rfind(b"/") + 1] + target
        path, _, args = target.partition(b"?")
        try:
            uri = normalise(path)
        except (HttpError, ValueError):
            uri = b""
        if not uri or b"/../" in unescape_redirect(path) + b"/":
            raise Wrong("unsafe URI")
        wait, name, stub = command.get(b"wait"), command.get(b"set"), command.get(b"stub")
        if wait not in (None, b"yes", b"no"):
            raise Wrong(f'invalid value "{wait.decode("latin-1")}" in "wait"')
        if stub is not None and stub not in self.shared.blocks:
            raise Wrong(f'"stub"="{stub.decode("latin-1")}" for "include" not found')
        made = Subrequest(self.request, uri, args, done=lambda ended: self._ended(ended, name, stub))
        made.share_vars(self.request)
        made.muted = name is not None
        self._waiting = wait == b"yes" or name is not None
        self.parts.begin(made)

    def _ended(self, made: Subrequest, name: bytes | None, stub: bytes | None) -> None:
        if stub is not None and (made.err_status >= 400 or not made.answer):
            made.collected = list(self.shared.blocks[stub])
        limit = made.location.settings.get("subrequest_output_buffer_size", 4096)
        if name is not None and made.size > limit:
            self.request.log_error(log.ERR, b"too big subrequest response: %d" % made.size)
            self.request.main.abandon()
            return
        if name is not None:
            self.shared.variables[name] = made.answer
        if self._waiting and self.parts.waits_for(made):
            self._waiting = False
            self._run()
        self.parts.settle()

    # variables

    def _keep(self, match: re.Match[bytes]) -> None:
        self.captures = (match.group(), *match.groups())
        self._names = {name.encode(): value for name, value in match.groupdict().items()}

    def lookup(self, name: bytes) -> bytes | None:
        """The value of a variable: of the page, of its last regular expression, of the configuration."""
        if name.isdigit():
            number = int(name)
            return self.captures[number] if number < len(self.captures) else None
        for table in (self.shared.variables, self._names):
            if name in table:
                return table[name]
        if name in (b"date_local", b"date_gmt"):
            return date(self.time_format, gmt=name == b"date_gmt")
        return self.request.var(name)


def date(form: bytes, *, gmt: bool) -> bytes:
    """The present time in a form of strftime; `%s` alone is seconds since the epoch."""
    at = time.time()
    if form == b"%s":
        return b"%d" % at
    text = form.decode("utf-8", "surrogateescape")
    text = time.strftime(text.replace("%Z", "GMT"), time.gmtime(at)) if gmt else time.strftime(text)
    return text.encode("utf-8", "surrogateescape")
