r"""The literals of fluent.conf v1: text without quotes, '...', "..." and JSON.

Rules (docs.fluentd.org, Config File Syntax, "Format Tips"):
- without quotes: to the end of the line, or to a `#` that follows a blank; other `#` belong to the text;
- '...': one line; `\'` and `\\` are escapes, every other backslash stands for itself;
- "...": may hold line ends; a backslash before one joins the lines; `#{...}` is evaluated;
- [...] and {...}: JSON over several lines, with `#`, `//` and `/* */` comments; `#{...}` in its strings
  is evaluated, as Fluentd does since 1.18.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.conf import fluent_ruby
from headrace.conf.values import USE_DEFAULT, from_json, to_json
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.files import Lines
    from headrace.conf.fluent_ruby import Surroundings

_TAIL = re.compile(r"[ \t]+(?:#|$)")
_PLAIN = re.compile(r'[^"\\#]+|#(?!\{)')
_PLAIN_SINGLE = re.compile(r"[^'\\\r\n]+")
_JSON_PLAIN = re.compile(r'[^"#/\[\]{}]+')
_JSON_COMMENT = re.compile(r"#[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
_JSON_STRING_PLAIN = re.compile(r'(?:[^"\\#]|#(?!\{)|\\[^#])+')
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_JSON_DEPTH_MAX = 100
_ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "b": "\b", "0": "\0"}


class Literals:
    """Scans literals of one text; every method takes an offset and returns (value, offset after it)."""

    def __init__(self, text: str, lines: Lines, around: Surroundings) -> None:
        self.text = text
        self.lines = lines
        self.around = around

    def fail(self, message: str, at: int, hint: str = "") -> ConfError:
        """Return the error for the character at `at`."""
        return ConfError(message, self.lines.place(at), hint=hint)

    def line_end(self, at: int) -> int:
        """Return the offset of the end of the line, its break not included."""
        match = _LINE_BREAK.search(self.text, at)
        return match.start() if match else len(self.text)

    def value(self, at: int) -> tuple[object, int]:
        """A parameter's value: a string of any kind, or JSON."""
        if self.text[at : at + 1] in {"[", "{"}:
            return self.json(at)
        return self.string(at)

    def string(self, at: int) -> tuple[object, int]:
        """A quoted string (str, None for use_nil, USE_DEFAULT), or text to the end of the line."""
        char = self.text[at : at + 1]
        if char == '"':
            return self.double_quoted(at)
        if char == "'":
            return self.single_quoted(at)
        end = self.line_end(at)
        match = _TAIL.search(self.text, at, end)
        stop = match.start() if match else end
        return self.text[at:stop], stop

    def double_quoted(self, at: int) -> tuple[object, int]:
        """A string between double quotes, the first at `at`."""
        begin, text = at, self.text
        parts: list[str] = []
        special: object = ""
        at += 1
        while at < len(text):
            if match := _PLAIN.match(text, at):
                parts.append(match[0])
                at = match.end()
            elif text[at] == '"':
                return ("".join(parts) if special == "" else special), at + 1
            elif text[at] == "\\":
                piece, at = self._escape(at)
                parts.append(piece)
            else:
                piece, at = self._embedded(at)
                if isinstance(piece, str):
                    parts.append(piece)
                elif special is not None:  # nil wins over default
                    special = piece
        raise self.fail("unexpected end of file in a double quoted string", begin, 'it needs a closing "')

    def _escape(self, at: int) -> tuple[str, int]:
        char = self.text[at + 1 : at + 2]
        if match := _LINE_BREAK.match(self.text, at + 1):
            return "", match.end()
        if char in _ESCAPES:
            return _ESCAPES[char], at + 2
        if char.isascii() and char.isalnum():
            raise self.fail(f'unexpected back-slash escape character "{char}"', at, r"write \\ for a backslash")
        return char, at + 2

    def _embedded(self, at: int) -> tuple[Any, int]:
        try:
            return fluent_ruby.evaluate(self.text, at + 2, self.lines.place(at), self.around)
        except fluent_ruby.UseNil:
            return None, fluent_ruby.after(self.text, at + 2)
        except fluent_ruby.UseDefault:
            return USE_DEFAULT, fluent_ruby.after(self.text, at + 2)

    def single_quoted(self, at: int) -> tuple[str, int]:
        """A string between single quotes, the first at `at`."""
        begin, text = at, self.text
        parts: list[str] = []
        at += 1
        while at < len(text) and text[at] not in "\r\n":
            if match := _PLAIN_SINGLE.match(text, at):
                parts.append(match[0])
                at = match.end()
            elif text[at] == "'":
                return "".join(parts), at + 1
            elif text[at + 1 : at + 2] in {"'", "\\"}:
                parts.append(text[at + 1])
                at += 2
            else:
                parts.append("\\")
                at += 1
        where = "line" if at < len(text) else "file"
        raise self.fail(f"unexpected end of {where} in a single quoted string", begin, "it needs a closing '")

    def json(self, at: int) -> tuple[object, int]:
        """A JSON array or object, its opening bracket at `at`."""
        begin, text = at, self.text
        kind = "array" if text[at] == "[" else "hash"
        parts: list[str] = []
        open_brackets = 0
        while at < len(text):
            if match := _JSON_PLAIN.match(text, at) or _JSON_COMMENT.match(text, at):
                # A comment becomes a blank, so that what stands at its sides is not joined.
                parts.append(" " if match[0][0] in "#/" else match[0])
                at = match.end()
                continue
            if text[at] == '"':
                piece, at = self._json_string(at)
                parts.append(piece)
                continue
            open_brackets += {"[": 1, "{": 1, "]": -1, "}": -1}.get(text[at], 0)
            if open_brackets > _JSON_DEPTH_MAX:
                raise self.fail(f"JSON {kind} is nested too deeply", at)
            parts.append(text[at])
            at += 1
            if open_brackets == 0:
                return self._json_value("".join(parts), kind, begin), at
        raise self.fail(f"got incomplete JSON {kind} configuration", begin, "quote a text that begins with [ or {")

    def _json_value(self, source: str, kind: str, begin: int) -> object:
        try:
            value = from_json(source)
            to_json(value).encode("utf-8", "surrogateescape")
        except UnicodeError:
            raise self.fail(f"JSON {kind} holds half of a surrogate pair", begin) from None
        except ValueError as error:
            hint = "quote a text that begins with [ or {"
            raise self.fail(f"JSON {kind}: {error}", begin, hint) from None
        return value

    def _json_string(self, at: int) -> tuple[str, int]:
        begin, text = at, self.text
        parts = ['"']
        at += 1
        while at < len(text) and text[at] != '"':
            if match := _JSON_STRING_PLAIN.match(text, at):
                parts.append(match[0])
                at = match.end()
            elif text[at] == "\\":  # only before #, where it protects #{
                parts.append("#")
                at += 2
            else:
                piece, at = self._embedded(at)
                if not isinstance(piece, str):
                    raise self.fail("use_nil and use_default cannot stand inside an array or a hash", begin)
                parts.append(to_json(piece)[1:-1])
        if at >= len(text):
            raise self.fail("unexpected end of file in a JSON string", begin, 'it needs a closing "')
        return "".join(parts) + '"', at + 1
