"""Literals of the Ruby subset: numbers, quoted texts with what they interpolate, symbols, patterns, word lists."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from headrace.plugins.expressions.nodes import Node, Refused

SPACE: Final = re.compile(r"(?:[ \t\r]|\\\n|#[^{\n][^\n]*)*")
NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]*", re.ASCII)
CONSTANT: Final = re.compile(r"[A-Z][A-Za-z0-9_]*", re.ASCII)
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?", re.ASCII)
_FLAGS: Final = re.compile(r"[imxounse]*")
_PAIRS: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "s": " ", "a": "\a", "b": "\b", "f": "\f",
    "v": "\v", "\n": "",
}  # fmt: skip
_CODE: Final = re.compile(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F ]+)\}|([0-7]{1,3})")
LENGTH_MAX: Final = 8192


class Words:
    """The reading of literals; `at` is where it is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        if len(text) > LENGTH_MAX:
            raise Refused(f"an expression of {len(text)} characters is too long")

    def program(self, end: str) -> Node:
        """Statements up to `end`."""
        raise NotImplementedError

    def refuse(self, message: str, at: int | None = None, hint: str = "") -> NoReturn:
        """Raise Refused for a place."""
        raise Refused(message, self.at if at is None else at, hint)

    def number(self) -> Node:
        """An integer or a float."""
        begin = self.at
        match = _NUMBER.match(self.text, begin)
        assert match is not None
        self.at = match.end()
        text = match[0].replace("_", "")
        if len(text) > 40:
            self.refuse("too long a number", begin)
        if text[:2].lower() in {"0x", "0b"}:
            return Node("literal", (int(text, 0),), begin)
        if text.isdecimal():
            return Node(
                "literal", (int(text, 8) if text[0] == "0" and set(text) <= set("01234567") else int(text),), begin
            )
        return Node("literal", (float(text),), begin)

    def quoted(self) -> Node:
        """'...' or "..."; texts side by side are one."""
        begin = self.at
        quote = self.text[begin]
        self.at += 1
        found = self._single(quote) if quote == "'" else self.interpolated(quote)
        space = re.compile(r"[ \t]*").match(self.text, self.at)
        assert space is not None
        if self.text.startswith(("'", '"'), space.end()):
            self.at = space.end()
            return Node("text", ([found, self.quoted()],), begin)
        return found

    def _single(self, close: str, opened: str = "") -> Node:
        begin = self.at
        out: list[str] = []
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "\\" and self.text[self.at : self.at + 1] in {close, "\\", opened or close}:
                char = self.text[self.at]
                self.at += 1
            elif char == close and not depth:
                return Node("literal", ("".join(out),), begin)
            elif opened and char in (opened, close):
                depth += 1 if char == opened else -1
            out.append(char)
        return self.refuse("a text without an end", begin)

    def interpolated(self, close: str, opened: str = "") -> Node:
        """A text up to `close` ("" for all there is), with escapes and `#{}`."""
        begin = self.at
        parts: list[Node] = []
        out: list[str] = []
        depth = 0
        while self.at < len(self.text) or not close:
            if self.at >= len(self.text):
                return self._text(parts, out, begin)
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                out.append(self._escape())
            elif char == "#" and self.text.startswith("{", self.at):
                self._part(parts, out)
            elif close and char == close and not depth:
                return self._text(parts, out, begin)
            else:
                if opened and char in (opened, close):
                    depth += 1 if char == opened else -1
                out.append(char)
        return self.refuse("a text without an end", begin)

    def _part(self, parts: list[Node], out: list[str]) -> None:
        if out:
            parts.append(Node("literal", ("".join(out),), self.at))
            out.clear()
        self.at += 1
        parts.append(self.program("}"))
        self.at += 1

    @staticmethod
    def _text(parts: list[Node], out: list[str], begin: int) -> Node:
        if not parts:
            return Node("literal", ("".join(out),), begin)
        if out:
            parts.append(Node("literal", ("".join(out),), begin))
        return Node("text", (parts,), begin)

    def _escape(self) -> str:
        match = _CODE.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
            codes = [int(part, 16) for part in (match[1] or match[2] or match[3] or "").split()] or [int(match[4], 8)]
            if any(code > 0x10FFFF or 0xD800 <= code < 0xE000 for code in codes) or (match[1] and codes[0] > 0x7F):
                self.refuse("a character that does not exist")
            return "".join(map(chr, codes))
        char = self.text[self.at : self.at + 1]
        self.at += 1
        return _ESCAPES.get(char, char)

    def percent(self) -> Node:
        """%w[...], %q(...), %Q[...], %r{...} and %(...)."""
        begin = self.at
        match = re.compile(r"%([wWiIqQr]?)([\[({<|/!])").match(self.text, begin)
        if match is None:
            self.refuse("unexpected %")
        self.at = match.end()
        opened = match[2]
        close = _PAIRS.get(opened, opened)
        nested = opened if opened in _PAIRS else ""
        kind = match[1]
        if kind == "r":
            return self.pattern(close, nested)
        if kind in {"w", "W", "i", "I"}:
            words = self._single(close, nested).parts[0].split()
            return Node("array", ([Node("literal", (word,), begin) for word in words],), begin)
        return self._single(close, nested) if kind == "q" else self.interpolated(close, nested)

    def pattern(self, close: str = "/", opened: str = "") -> Node:
        """A pattern behind its first mark."""
        begin = self.at
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self.at += 1
            elif self.text.startswith("#{", self.at):
                self.refuse("#{} in a pattern is not supported")
            elif char == close and not depth:
                source = self.text[begin : self.at]
                self.at += 1
                flags = _FLAGS.match(self.text, self.at)
                assert flags is not None
                self.at = flags.end()
                return Node("pattern", (source.replace("\\/", "/"), flags[0]), begin)
            elif opened and char in (opened, close):
                depth += 1 if char == opened else -1
            self.at += 1
        return self.refuse("a pattern without an end", begin)
