"""charset, source_charset, charset_map: the character set that an answer names, and conversion to it.

https://nginx.org/en/docs/http/ngx_http_charset_module.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import HSL, HSLI, MANY, BaseFamily, block, flag, flag_of, spec, table
from headrace.edge.families.sub_filter import of_type
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

TYPES: Final = frozenset(
    {b"text/html", b"text/xml", b"text/plain", b"text/vnd.wap.wml", b"application/javascript", b"application/rss+xml"}
)
UTF8: Final = b"utf-8"
_CHARSET: Final = re.compile(rb";[ \t]*charset=\"?([^\";, \t]+)\"?", re.IGNORECASE)


@dataclass
class Conversion:
    """From one set to another. bytewise: what stands for each byte; characters: a byte for each character of UTF-8."""

    bytewise: tuple[bytes, ...] = ()
    characters: dict[str, bytes] | None = None


class CharsetFamily(BaseFamily):
    """Character sets."""

    specs = table(
        spec("charset", HSLI, 1),
        spec("source_charset", HSLI, 1),
        flag("override_charset", HSLI),
        spec("charset_types", HSL, 1, MANY),
        block("charset_map", ("http",), 2, data=True),
    )

    def __init__(self) -> None:
        self._conversions: dict[tuple[bytes, bytes], Conversion] = {}
        self._wanted: list[tuple[bytes, bytes, Directive]] = []

    @staticmethod
    def _do_charset(scope: Scope, directive: Directive) -> None:
        text = directive.args[0]
        value = b"" if text == "off" else compile_value(text, scope.build.variables, directive.place)
        scope.set_once(directive, value)

    @staticmethod
    def _do_source_charset(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, compile_value(directive.args[0], scope.build.variables, directive.place))

    @staticmethod
    def _do_override_charset(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    @staticmethod
    def _do_charset_types(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, frozenset(to_bytes(word).lower() for word in directive.args) | {b"text/html"})

    def _do_charset_map(self, _scope: Scope, directive: Directive) -> None:
        source, target = (to_bytes(word).lower() for word in directive.args)
        if source == target:
            raise ConfError(
                f'"charset_map" between the same charsets "{directive.args[0]}" and "{directive.args[1]}"',
                directive.place,
            )
        if (source, target) in self._conversions:
            raise ConfError(
                f'duplicate "charset_map" between "{directive.args[0]}" and "{directive.args[1]}"', directive.place
            )
        unicode = target == UTF8
        there = [bytes((i,)) if i < 128 else b"?" for i in range(256)]
        back = [bytes((i,)) if i < 128 else b"?" for i in range(256)]
        characters: dict[str, bytes] = {}
        for entry in directive.block or ():
            if len(entry.args) != 1:
                raise ConfError("invalid parameters number", entry.place)
            try:
                byte, value = bytes.fromhex(entry.name.zfill(2)), bytes.fromhex(entry.args[0].zfill(2))
            except ValueError:
                raise ConfError(f'invalid value "{entry.name}"', entry.place) from None
            if len(byte) != 1 or (len(value) != 1 and not unicode):
                raise ConfError(f'invalid value "{entry.args[0]}"', entry.place)
            there[byte[0]] = value
            if unicode:
                characters[value.decode("utf-8", "surrogateescape")] = byte
            else:
                back[value[0]] = byte
        self._conversions[source, target] = Conversion(tuple(there))
        self._conversions[target, source] = Conversion((), characters) if unicode else Conversion(tuple(back))

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the header filter where an answer is to name a set."""
        charset: Value = scope.get("charset", b"")
        source: Value | None = scope.get("source_charset")
        if isinstance(charset, bytes):
            location.charset = charset
        if charset == b"" and not self._conversions:
            return
        if charset and isinstance(charset, bytes) and isinstance(source, bytes):
            known = {*self._conversions, (source.lower(), source.lower())}
            if (source.lower(), charset.lower()) not in known:
                shown = source.decode("latin-1"), charset.decode("latin-1")
                raise ConfError(f'no "charset_map" between the charsets "{shown[0]}" and "{shown[1]}"', scope.place)
        rules = Rules(
            charset,
            source,
            scope.get("charset_types", TYPES),
            override=scope.get("override_charset", False),
            conversions=self._conversions,
        )
        location.charset_filter = True
        location.add_header_filter("charset", rules.header)


@dataclass(frozen=True)
class Rules:
    """What holds for one location."""

    charset: Value
    source: Value | None
    types: frozenset[bytes]
    override: bool
    conversions: dict[tuple[bytes, bytes], Conversion]

    def header(self, request: Request) -> None:
        """The header filter."""
        kind = request.content_type
        if not kind:
            return
        named = _CHARSET.search(kind)
        outer = request.parent
        if outer is not None:
            self._inner(request, named)
            return
        charset = request.charset  # of an upstream that has its say
        if not charset:
            if not of_type(request, self.types) or (named is not None and not self.override):
                return
            charset = evaluate(self.charset, request)
        if not charset:
            return
        source = named.group(1) if named else b"" if self.source is None else evaluate(self.source, request)
        convert = bool(source) and source.lower() != charset.lower()
        kept = request.kept_headers
        if convert and kept is not None and kept.get(b"Content-Encoding") is not None:
            return  # what is compressed cannot be converted
        request.charset = charset.lower()
        request.content_type = (kind[: named.start()] if named else kind) + b"; charset=" + charset
        if convert:
            self._convert(request, source, charset)

    def _inner(self, request: Request, named: re.Match[bytes] | None) -> None:
        """The answer of a subrequest becomes what the client's answer says it is."""
        target = request.main.charset
        source = named.group(1) if named else b"" if self.source is None else evaluate(self.source, request)
        if target and source and source.lower() != target and of_type(request, self.types):
            self._convert(request, source, target)

    def _convert(self, request: Request, source: bytes, target: bytes) -> None:
        found = self.conversions.get((source.lower(), target.lower()))
        if found is None:
            return
        if found.characters is not None or any(len(text) > 1 for text in found.bytewise):
            request.content_length = request.allow_ranges = None
        request.body_filters = (*request.body_filters, Converting(found).body)


class Converting:
    """One answer on its way."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._held = b""
        texts = conversion.bytewise
        self._table = b"".join(texts) if texts and all(len(text) == 1 for text in texts) else None

    def body(self, _request: Request, data: bytes, last: bool) -> bytes:
        """The body filter."""
        if self._table is not None:
            return data.translate(self._table)
        characters = self._conversion.characters
        if characters is None:
            texts = self._conversion.bytewise
            return b"".join([texts[byte] for byte in data])
        data = self._held + data
        keep = 0 if last else _unfinished(data)
        data, self._held = data[: len(data) - keep], data[len(data) - keep :]
        if data.isascii():
            return data
        out = []
        for char in data.decode("utf-8", "replace"):
            if char < "\x80":
                out.append(char.encode())
            elif char in characters:
                out.append(characters[char])
            else:
                out.append(b"?" if char == "\ufffd" else b"&#%d;" % ord(char))
        return b"".join(out)


def _unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 that goes on."""
    for size in range(1, min(3, len(data)) + 1):
        byte = data[-size]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return size if size < needed else 0
        if byte < 0x80:
            return 0
    return 0
