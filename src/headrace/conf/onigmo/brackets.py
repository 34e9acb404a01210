r"""Classes in brackets, sets that are escapes, and the characters that escapes mean."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from headrace.conf.onigmo.classes import DIGIT, HEX, SPACE, WORD, Class, Property, Ranges, named

_POSIX: Final = re.compile(r"\[:(\^?)([a-zA-Z]+):\]")
_PROPERTY: Final = re.compile(r"\\([pP])\{(\^?)([\w \-=]+)\}", re.ASCII)
_CODE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F\s]+)\}|([0-7]{1,3}))")
_BYTE: Final = re.compile(r"\\x([89a-fA-F][0-9a-fA-F])")
_CONTROL: Final = re.compile(r"\\(?:c|C-)(.)", re.DOTALL)
_PLAIN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_SETS: Final[dict[str, tuple[Ranges, str]]] = {
    "d": (DIGIT, "digit"),
    "w": (WORD, "word"),
    "s": (SPACE, "space"),
    "h": (HEX, "xdigit"),
}
_SURROGATES: Final = range(0xD800, 0xE000)


class Brackets:
    """The part of the grammar that is about single characters. `at` is where the reading is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, why: str) -> NoReturn:
        """Raise ValueError."""
        raise NotImplementedError

    def bracket(self, words: str, depth: int = 0) -> Class:
        """The class whose `[` is at `at`; words: which alphabet the escapes mean."""
        if depth > 20:
            self.fail("classes are nested too deeply")
        text = self.text
        begin = self.at
        self.at += 1
        negated = text.startswith("^", self.at)
        self.at += negated
        parts = [Class()]
        first = True
        while True:
            if self.at >= len(text):
                self.at = begin
                self.fail("premature end of char-class")
            if text[self.at] == "]":
                if not first or "]" not in text[self.at + 1 :]:
                    break
            elif text.startswith("&&", self.at):
                self.at += 2
                parts.append(Class())
                continue
            self._member(parts[-1], words, depth)
            first = False
        self.at += 1
        if first:
            self.at = begin
            self.fail("empty char-class")
        head = parts[0]
        head.cuts = parts[1:]
        head.negated = negated
        return head

    def _member(self, cls: Class, words: str, depth: int) -> None:
        text = self.text
        if match := _POSIX.match(text, self.at):
            try:
                cls.parts.append(named(match[2].lower(), negated=bool(match[1]), ascii_only=words == "a"))
            except ValueError as error:
                self.fail(str(error))
            self.at = match.end()
            return
        if text[self.at] == "[":
            cls.parts.append(self.bracket(words, depth + 1))
            return
        if (found := self.set_escape(words)) is not None:
            cls.parts.append(found)
            return
        low = self._character()
        if text.startswith("-", self.at) and text[self.at + 1 : self.at + 2] not in {"]", "", "["}:
            before = self.at
            self.at += 1
            if text.startswith("&&", self.at):
                self.at = before
            elif self.set_escape(words) is not None:
                self.fail("char-class value at end of range")
            else:
                high = self._character()
                if high < low:
                    self.fail("empty range in char class")
                cls.ranges.append((low, high))
                return
        cls.ranges.append((low, low))

    def _character(self) -> int:
        if self.text[self.at] != "\\":
            self.at += 1
            return ord(self.text[self.at - 1])
        if self.text.startswith("\\b", self.at):
            self.at += 2
            return 8
        if self.text[self.at + 1 : self.at + 2] in {"R", "X"}:
            self.fail(f"{self.text[self.at : self.at + 2]} in a class")
        found = self.characters()
        if len(found) != 1:
            self.fail("several characters in a class by one escape")
        return ord(found)

    def set_escape(self, words: str) -> Class | None:
        r"""The set that `\d`, `\p{Alpha}` and their kind mean; None (and nothing read) for anything else."""
        if match := _PROPERTY.match(self.text, self.at):
            self.at = match.end()
            return self._property(match[3], negated=(match[1] == "P") != bool(match[2]), words=words)
        letter = self.text[self.at + 1 : self.at + 2] if self.text.startswith("\\", self.at) else ""
        if letter in {"p", "P"}:
            self.fail("invalid character property name")
        if letter.lower() not in _SETS or not letter:
            return None
        self.at += 2
        ranges, name = _SETS[letter.lower()]
        if words == "u":
            return named(name, negated=letter.isupper(), ascii_only=False)
        return Class(ranges=list(ranges), negated=letter.isupper())

    def _property(self, name: str, *, negated: bool, words: str) -> Class:
        try:
            return named(name.lower(), negated=negated, ascii_only=words == "a")
        except ValueError:
            if name.lower() == "any":
                return Class(negated=not negated)
            return Class(parts=[Property(f"\\p{{{name}}}", negated)])

    def characters(self) -> str:
        """What an escape that means characters means."""
        if match := _BYTE.match(self.text, self.at):
            return self._bytes(match)
        if match := _CODE.match(self.text, self.at):
            self.at = match.end()
            byte, four, several, octal = match.groups()
            codes = [int(part, 16) for part in (byte or four or several or "").split()] or [int(octal, 8)]
            if any(code > 0x10FFFF or code in _SURROGATES for code in codes) or (octal and codes[0] > 0x7F):
                self.fail("invalid Unicode range")
            return "".join(map(chr, codes))
        if match := _CONTROL.match(self.text, self.at):
            self.at = match.end()
            return chr(ord(match[1]) & 0x1F)
        char = self.text[self.at + 1 : self.at + 2]
        if not char:
            self.fail("too short escape sequence")
        if char in {"M", "C", "c", "x", "u"}:
            self.fail(f"\\{char} as it stands here is not supported")
        self.at += 2
        return _PLAIN.get(char, char)

    def _bytes(self, match: re.Match[str] | None) -> str:
        r"""Bytes of UTF-8 that are spelled one by one: \xE3\x81\x82."""
        raw = bytearray()
        while match is not None:
            raw.append(int(match[1], 16))
            self.at = match.end()
            match = _BYTE.match(self.text, self.at)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.fail("invalid multibyte escape")
