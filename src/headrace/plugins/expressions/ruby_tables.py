"""The methods of texts, times, matches and of everything: tables of name -> (arguments it takes, function).

How many arguments a method takes is spelled "1" or "0-2", with a b where a block may stand and a B where it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.event import NS
from headrace.plugins.expressions import ruby_text_methods
from headrace.plugins.expressions.ruby_kinds import (
    RubyError,
    Type,
    interpolated,
    is_pattern,
    kind,
)
from headrace.plugins.expressions.ruby_static import to_json
from headrace.plugins.expressions.ruby_time import Moment
from headrace.plugins.expressions.ruby_values import remember
from headrace.plugins.ruby_text import inspect, scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Method = tuple[str, Callable[..., Any]]

_words = ruby_text_methods
_same: Final = lambda value, *_args: value  # noqa: E731 - it is a table's entry


def _upper_first(text: str) -> str:
    return text[:1].upper() + text[1:].lower()


def _scrubbed(text: str, replacement: str = "\ufffd") -> str:
    return scrub(text.encode("utf-8", "surrogateescape"), replacement).decode()


def _match(text: str, pattern: Any) -> Any:
    return remember(pattern.search(text) if is_pattern(pattern) else _compiled(pattern).search(text))


def _compiled(_text: Any) -> Any:
    raise RubyError("a pattern that is made of a text is not supported: write /.../")


def _tested(text: str, pattern: Any) -> bool:
    return (pattern if is_pattern(pattern) else _compiled(pattern)).search(text) is not None


def _found(text: str, part: Any, begin: int = 0, *, last: bool = False) -> int | None:
    if is_pattern(part):
        match = remember(part.search(text, begin))
        return None if match is None else match.start()
    at = text.rfind(_words.need_text(part)) if last else text.find(_words.need_text(part), begin)
    return None if at < 0 else at


def _starts(text: str, *heads: Any) -> bool:
    return any(
        head.match(text) is not None if is_pattern(head) else text.startswith(_words.need_text(head)) for head in heads
    )


def _valid(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _parted(text: str, by: Any) -> list[str]:
    if is_pattern(by):
        match = remember(by.search(text))
        return [text, "", ""] if match is None else [text[: match.start()], match.group(), text[match.end() :]]
    return list(text.partition(_words.need_text(by)))


def _encoded(text: str, *names: Any) -> str:
    options = names[-1] if names and isinstance(names[-1], dict) else {}
    plain = [name for name in names if isinstance(name, str)]
    if any(name.upper() not in {"UTF-8", "ASCII-8BIT", "BINARY"} for name in plain):
        raise RubyError("texts are UTF-8 here; the parameter char_encoding of record_modifier converts")
    return _scrubbed(text, options.get("replace", "\ufffd")) if options.get("invalid") == "replace" else text


TEXT: Final[Mapping[str, Method]] = {
    "to_s": ("0", _same),
    "to_str": ("0", _same),
    "to_sym": ("0", _same),
    "to_i": ("0-1", _words.to_i),
    "to_f": ("0", _words.to_f),
    "to_r": ("0", _words.to_f),
    "upcase": ("0", str.upper),
    "downcase": ("0", str.lower),
    "capitalize": ("0", _upper_first),
    "swapcase": ("0", str.swapcase),
    "strip": ("0", lambda text: text.strip(_words.SPACES)),
    "lstrip": ("0", lambda text: text.lstrip(_words.SPACES)),
    "rstrip": ("0", lambda text: text.rstrip(_words.SPACES)),
    "chomp": (
        "0-1",
        lambda text, end=None: (
            text.removesuffix(end) if end is not None else text.removesuffix("\n").removesuffix("\r")
        ),
    ),
    "chop": ("0", lambda text: text[:-2] if text.endswith("\r\n") else text[:-1]),
    "chr": ("0", lambda text: text[:1]),
    "chars": ("0", list),
    "each_char": ("0", list),
    "each_line": ("0", lambda text: text.splitlines(keepends=True)),
    "bytes": ("0", lambda text: list(text.encode("utf-8", "surrogateescape"))),
    "lines": ("0", lambda text: text.splitlines(keepends=True)),
    "reverse": ("0", lambda text: text[::-1]),
    "length": ("0", len),
    "size": ("0", len),
    "bytesize": ("0", lambda text: len(text.encode("utf-8", "surrogateescape"))),
    "empty?": ("0", lambda text: not text),
    "include?": ("1", lambda text, part: _words.need_text(part) in text),
    "start_with?": ("1-9", _starts),
    "end_with?": ("1-9", lambda text, *tails: text.endswith(tuple(map(_words.need_text, tails)))),
    "delete_prefix": ("1", lambda text, head: text.removeprefix(_words.need_text(head))),
    "delete_suffix": ("1", lambda text, tail: text.removesuffix(_words.need_text(tail))),
    "sub": ("1-2b", lambda *args, **block: _words.substitute(*args, count=1, **block)),
    "gsub": ("1-2b", _words.substitute),
    "tr": ("2", _words.tr),
    "delete": ("1", _words.deleted),
    "squeeze": ("0-1", _words.squeezed),
    "count": ("1", _words.counted),
    "split": ("0-2", _words.split),
    "scan": ("1", _words.scan),
    "partition": ("1", _parted),
    "rpartition": ("1", lambda text, by: list(text.rpartition(_words.need_text(by)))),
    "slice": ("1-2", _words.slice_text),
    "index": ("1-2", _found),
    "rindex": ("1", lambda text, part: _found(text, part, last=True)),
    "match": ("1", _match),
    "match?": ("1", _tested),
    "=~": ("1", _match),
    "ljust": ("1-2", lambda *args: _words.justify(*args, where="l")),
    "rjust": ("1-2", lambda *args: _words.justify(*args, where="r")),
    "center": ("1-2", lambda *args: _words.justify(*args, where="c")),
    "concat": ("1", lambda text, other: text + _words.need_text(other)),
    "hex": ("0", lambda text: _words.to_i(text, 16)),
    "oct": ("0", lambda text: _words.to_i(text, 8)),
    "ord": ("0", lambda text: ord(text[0])),
    "scrub": ("0-1", _scrubbed),
    "valid_encoding?": ("0", _valid),
    "ascii_only?": ("0", str.isascii),
    "encode": ("0-3", _encoded),
    "force_encoding": ("1", _encoded),
    "b": ("0", _same),
    "unicode_normalize": ("0", _same),
    "between?": ("2", lambda text, low, high: low <= text <= high),
    "casecmp?": ("1", lambda text, other: text.casefold() == other.casefold()),
    "casecmp": ("1", lambda text, other: (text.lower() > other.lower()) - (text.lower() < other.lower())),
}

MOMENT: Final[Mapping[str, Method]] = {
    "to_i": ("0", lambda time: time.ns // NS),
    "to_f": ("0", lambda time: time.ns / NS),
    "to_r": ("0", lambda time: time.ns / NS),
    "to_s": ("0", str),
    "to_time": ("0", _same),
    "strftime": ("1", Moment.strftime),
    "iso8601": ("0-1", Moment.iso8601),
    "xmlschema": ("0-1", Moment.iso8601),
    "utc": ("0", lambda time: time.local("UTC")),
    "getutc": ("0", lambda time: time.local("UTC")),
    "gmtime": ("0", lambda time: time.local("UTC")),
    "getgm": ("0", lambda time: time.local("UTC")),
    "localtime": ("0-1", Moment.local),
    "getlocal": ("0-1", Moment.local),
    "year": ("0", lambda time: time.fields().year),
    "month": ("0", lambda time: time.fields().month),
    "mon": ("0", lambda time: time.fields().month),
    "day": ("0", lambda time: time.fields().day),
    "mday": ("0", lambda time: time.fields().day),
    "hour": ("0", lambda time: time.fields().hour),
    "min": ("0", lambda time: time.fields().minute),
    "sec": ("0", lambda time: time.fields().second),
    "usec": ("0", lambda time: time.ns % NS // 1000),
    "nsec": ("0", lambda time: time.ns % NS),
    "wday": ("0", lambda time: time.fields().isoweekday() % 7),
    "yday": ("0", lambda time: time.fields().timetuple().tm_yday),
    "zone": ("0", lambda time: time.fields().tzname()),
    "utc_offset": ("0", Moment.utc_offset),
    "round": ("0-1", Moment.rounded),
    "utc?": ("0", lambda time: time.utc_offset() == 0),
}

NOTHING: Final[Mapping[str, Method]] = {
    "to_s": ("0", lambda _value: ""),
    "to_i": ("0", lambda _value: 0),
    "to_f": ("0", lambda _value: 0.0),
    "to_a": ("0", lambda _value: []),
    "to_h": ("0", lambda _value: {}),
    "&": ("1", lambda _value, _other: False),
}

MATCH: Final[Mapping[str, Method]] = {
    "captures": ("0", lambda match: list(match.groups())),
    "named_captures": ("0", lambda match: match.groupdict()),
    "pre_match": ("0", lambda match: match.string[: match.start()]),
    "post_match": ("0", lambda match: match.string[match.end() :]),
    "to_a": ("0", lambda match: [match.group(), *match.groups()]),
    "to_s": ("0", lambda match: match.group()),
    "begin": ("1", lambda match, group: match.start(group)),
    "end": ("1", lambda match, group: match.end(group)),
    "names": ("0", lambda match: list(match.re.groupindex)),
}

PATTERN: Final[Mapping[str, Method]] = {
    "match": ("1", lambda pattern, text: None if text is None else _match(_words.need_text(text), pattern)),
    "match?": ("1", lambda pattern, text: text is not None and _tested(_words.need_text(text), pattern)),
}

EVERY: Final[Mapping[str, Method]] = {
    "nil?": ("0", lambda value: value is None),
    "to_s": ("0", interpolated),
    "inspect": ("0", inspect),
    "to_json": ("0", to_json),
    "is_a?": ("1", lambda value, one: isinstance(one, Type) and one.holds(value)),
    "kind_of?": ("1", lambda value, one: isinstance(one, Type) and one.holds(value)),
    "instance_of?": ("1", lambda value, one: isinstance(one, Type) and one.holds(value)),
    "class": ("0", lambda value: Type(kind(value), type(value))),
    "dup": ("0", _same),
    "clone": ("0", _same),
    "freeze": ("0", _same),
    "itself": ("0", _same),
    "frozen?": ("0", lambda _value: True),
    "eql?": ("1", lambda value, other: type(value) is type(other) and value == other),
    "equal?": ("1", lambda value, other: value is other),
    "then": ("0b", lambda value, block: block.call(value)),
    "yield_self": ("0b", lambda value, block: block.call(value)),
    "tap": ("0b", lambda value, block: (block.call(value), value)[1]),
    "hash": ("0", hash),
    "respond_to?": ("1", bool),  # find knows better
}

TYPE: Final[Mapping[str, Method]] = {"name": ("0", lambda one: one.name), "to_s": ("0", lambda one: one.name)}
