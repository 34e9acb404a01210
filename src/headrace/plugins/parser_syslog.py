"""Parser `syslog` (docs.fluentd.org, Parser Plugins, syslog): RFC 3164, RFC 5424, or whichever a message begins like.

Two engines, as in Fluentd: they agree on what is in order, and differ in the rest. `regexp` takes everything up to
the first colon for the ident; `string` takes one word, and removes backslashes from structured data.

A header that does not fit is no match here, while Fluentd looks for one further on in the text: that costs time
that grows with the square of the length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, enum, string
from headrace.plugins.parsing import ParserError, RecordParser, make_time_parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record
    from headrace.plugins.parsing import Parsed

    Time = Callable[[str], int]
    Body = Callable[[str, int, Record], Record | None]
    """(text, where the part after the time begins, the record so far) -> the record."""

DEFAULT_TIME: Final = "%b %d %H:%M:%S"
_FIXED: Final = (DEFAULT_TIME, DEFAULT_TIME + ".%N")
"""Formats whose texts begin with 15 characters that need not be looked at."""
_FIXED_SIZE: Final = 15
_WITHOUT_FRACTION: Final = "%Y-%m-%dT%H:%M:%S%z"

_NEWER: Final = re.compile(r"<[0-9]{1,3}>[1-9]\d{0,2}", re.ASCII)
_PRI: Final = re.compile(r"<([0-9]{1,3})>")
_PRI_VERSION: Final = re.compile(r"<([0-9]{1,3})>[0-9]{1,3}\s")
_RFC3164: Final = re.compile(r"([^ ]*) ([^ :\[]*)(?:\[([0-9]+)\])?(?:[^:]*:)? *(.*)$", re.MULTILINE)
_RFC5424: Final = re.compile(
    r"([!-~]{1,255}) ([!-~]{1,48}) ([!-~]{1,128}) ([!-~]{1,32}) (-|\[.*?(?<!\\)\])(?: (.+))?\Z", re.DOTALL
)
_NO: Final[Parsed] = [(None, None)]


class SyslogParser(RecordParser):
    """Reads syslog messages. Fields: pri (with_priority), host, ident, pid, msgid, extradata, message."""

    time_format = RecordParser.time_format.with_default(DEFAULT_TIME)
    with_priority = boolean(default=False, doc="Messages begin with a priority, <6>, which becomes the field pri")
    message_format = enum(("rfc3164", "rfc5424", "auto"), default="rfc3164", doc="auto: as the message begins")
    rfc5424_time_format = string(default="%Y-%m-%dT%H:%M:%S.%L%z", doc="Format of times in messages of RFC 5424")
    parser_engine = enum(("regexp", "string"), default="regexp", alias="parser_type", doc="string is the faster one")
    support_colonless_ident = boolean(
        default=True, doc="With the string engine: the first word is the ident even without a colon after it"
    )

    def validate(self, problems: Problems) -> None:
        """Choose the functions."""
        super().validate(problems)
        given = {child.name for child in self.directive.block or ()} if self.directive else set()
        newer = self.rfc5424_time_format
        if self.message_format == "rfc5424" and "time_format" in given:
            newer = self.time_format or newer
        kind = self.time_type if self.time_type != "mixed" else "string"

        def parser_of(name: str, form: str) -> Time:
            try:
                return _remembering(make_time_parser(kind, form, self.zone, self._now))
            except ValueError as error:
                problems.error(f'parameter "{name}": {error}', self.place_of(name))
                return int

        older = self.time_format or DEFAULT_TIME
        self._older_time = parser_of("time_format", older)
        self._newer_time = _with_fallback(
            parser_of("rfc5424_time_format", newer), parser_of("rfc5424_time_format", _WITHOUT_FRACTION)
        )
        self._older_words = _words(older)
        self._newer_words = _words(newer)
        by_words = self.parser_engine == "string"
        self._fixed = by_words and older in _FIXED
        self._older_body: Body = self._rfc3164_words if by_words else _rfc3164_regexp
        self._newer_body: Body = _rfc5424_words if by_words else _rfc5424_regexp

    def read(self, text: bytes) -> Parsed:
        """Parse one message. Raises ParserError for a time that is none."""
        line = text.decode("utf-8", "surrogateescape")
        form = self.message_format
        if form == "rfc3164" or (form == "auto" and _NEWER.match(line) is None):
            return self._older(line)
        return self._newer(line)

    def _older(self, line: str) -> Parsed:
        record: Record = {}
        start = 0
        if self.with_priority:
            match = _PRI.match(line)
            if match is None:
                return _NO
            record["pri"] = int(match[1])
            start = match.end()
        if self._fixed:
            end = start + _FIXED_SIZE
            after = line[end : end + 1]
            if after == ".":
                end = line.find(" ", end)
            elif after != " ":
                return _NO
            stamp = line[start:end]
        else:
            stamp, end = _stamp(line, start, self._older_words)
        if end < 0 or self._older_body(line, end + 1, record) is None:
            return _NO
        return self._event(stamp, self._older_time, record)

    def _newer(self, line: str) -> Parsed:
        record: Record = {}
        start = 0
        if self.with_priority:
            match = _PRI_VERSION.match(line)
            if match is None:
                return _NO
            record["pri"] = int(match[1])
            start = match.end()
        stamp, end = _stamp(line, start, self._newer_words)
        if end < 0 or self._newer_body(line, end + 1, record) is None:
            return _NO
        return self._event(stamp, self._newer_time, record)

    def _event(self, stamp: str, time_of: Time, record: Record) -> Parsed:
        try:
            time = time_of(stamp)
        except ValueError as error:
            raise ParserError(f"invalid time: {error}") from error
        if self.keep_time_key:
            record["time"] = stamp
            if self.parser_engine == "regexp":  # there it stands where it was in the line
                record = {name: record[name] for name in ("pri", "time", *record) if name in record}
        if self._converts:
            self._convert(record)
        return [(time, record)]

    def _rfc3164_words(self, text: str, at: int, record: Record) -> Record | None:
        end = text.find(" ", at)
        if end < 0:
            return None
        record["host"] = text[at:end]
        at = end + 1
        end = text.find(" ", at)
        message = at
        if end >= 0:
            word = text[at:end]
            colon = word.endswith(":")
            if colon or self.support_colonless_ident:
                word = word[:-1] if colon else word
                bracket = word.find("[") if word.endswith("]") else -1
                if bracket >= 0:
                    record["ident"], record["pid"] = word[:bracket], word[bracket + 1 : -1]
                else:
                    record["ident"] = word
                message = end + 1
        record["message"] = _chomp(text[message:])
        return record


def _rfc3164_regexp(text: str, at: int, record: Record) -> Record | None:
    match = _RFC3164.match(text, at)
    if match is None:
        return None
    host, ident, pid, message = match.groups()
    record["host"] = host
    record["ident"] = ident
    if pid is not None:
        record["pid"] = pid
    record["message"] = _chomp(message)
    return record


def _rfc5424_regexp(text: str, at: int, record: Record) -> Record | None:
    match = _RFC5424.match(text, at)
    if match is None:
        return None
    record["host"], record["ident"], record["pid"], record["msgid"], record["extradata"], message = match.groups()
    if message is not None:
        record["message"] = _chomp(message)
    return record


def _rfc5424_words(text: str, at: int, record: Record) -> Record | None:
    words = text[at:].split(" ", 4)
    if len(words) < 5:
        return None
    record["host"], record["ident"], record["pid"], record["msgid"], rest = words
    if rest.startswith("-"):
        record["extradata"] = "-"
        end = 1
    else:
        end = rest.find("] ") + 1 or len(rest)
        record["extradata"] = rest[:end].replace("\\", "")
    if end < len(rest):
        record["message"] = _chomp(rest[end + 1 :])
    return record


def _words(form: str) -> int:
    """Of how many words a time of this format is."""
    return re.sub(" +", " ", form).count(" ") + 1


def _stamp(text: str, start: int, words: int) -> tuple[str, int]:
    """The first words of a text, single spaces between them, and where they end; -1 when there are not as many."""
    end = start - 1
    squeezed = False
    for _ in range(words):
        while text.startswith(" ", end + 1):
            squeezed = True
            end += 1
        end = text.find(" ", end + 1)
        if end < 0:
            return "", -1
    stamp = text[start:end]
    return (re.sub(" +", " ", stamp) if squeezed else stamp), end


def _chomp(text: str) -> str:
    if text.endswith("\r\n"):
        return text[:-2]
    return text[:-1] if text.endswith(("\n", "\r")) else text


def _remembering(read: Callable[[Any], int]) -> Time:
    """The same function; messages that come together have the same time."""
    last, value = "", 0

    def parse(text: str) -> int:
        nonlocal last, value
        if text != last or not text:
            value = read(text)
            last = text
        return value

    return parse


def _with_fallback(first: Time, second: Time) -> Time:
    def parse(text: str) -> int:
        try:
            return first(text)
        except ValueError:
            return second(text)

    return parse
