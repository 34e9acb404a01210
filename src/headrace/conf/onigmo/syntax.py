r"""The grammar of Ruby's patterns: text -> nodes.

Rules that differ from other languages, all seen with Ruby:
- `^` and `$` are at every line; (?m) lets a dot match a newline; `\Z` stands before a last newline too;
- with a named group, plain parentheses do not capture, and groups cannot be told by number;
- `(?i)` within a group lasts to its end, over `|`;
- `a{2}?` is (?:a{2})?, and `a{1,2}+` is (?:a{1,2})+; `*+`, `++`, `?+` are possessive; `{,2}` is {0,2};
- a `{`, `}` or `]` that begins or ends nothing stands for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from headrace.conf.onigmo import nodes
from headrace.conf.onigmo.brackets import Brackets
from headrace.conf.onigmo.nodes import Node, Sequence

_NAMED: Final = re.compile(r"\(\?(?:<(?![=!])([^>]*)>|'([^']*)')")
_OPTIONS: Final = re.compile(r"\(\?([imxadu]*)(?:-([imx]*))?([:)])")
_INTERVAL: Final = re.compile(r"\{(?:(\d+)(,(\d*))?|,(\d+))\}")
_TARGET: Final = re.compile(r"<([^>]*)>|'([^']*)'")
_CONDITION: Final = re.compile(r"\(\?\((?:<([^>]+)>|'([^']+)'|(\d+))\)")
_LOOKS: Final = {"(?=": "=", "(?!": "!", "(?<=": "<=", "(?<!": "<!", "(?>": ">"}
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ANCHORS: Final = frozenset("AzZbBGK")
_DEPTH_MAX: Final = 100
_REPEAT_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Options:
    """What `(?...)` may change. words: "d" (Ruby's default), "a" (all ASCII) or "u" (all Unicode)."""

    icase: bool = False
    newline: bool = False
    extended: bool = False
    words: str = "d"


class Parser(Brackets):
    """Reads one pattern. Raises ValueError with a sentence for the user."""

    def __init__(self, text: str, options: Options) -> None:
        super().__init__(text)
        self.options = options
        self._depth = 0
        self._named = bool(re.search(r"\(\?(?:<(?![=!])|')", _without_escapes(text)))
        self._names: list[str] = []
        self._groups = 0
        self._wanted: list[int | str] = []

    def pattern(self) -> Node:
        """The whole pattern."""
        node = self._choice()
        if self.at < len(self.text):
            self.fail("a ) that closes nothing")
        for target in self._wanted:
            known = target in self._names if isinstance(target, str) else 0 <= target <= self._groups
            if not known:
                self.fail(f"there is no group {target}")
        return node

    def fail(self, why: str) -> NoReturn:
        """Raise the error, with the place in the pattern."""
        raise ValueError(f"invalid pattern /{self.text}/: {why}, at character {self.at + 1}")

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self.fail("groups are nested too deeply")
        options = self.options
        items = [self._sequence()]
        while self.text.startswith("|", self.at):
            self.at += 1
            items.append(self._sequence())
        self.options = options
        self._depth -= 1
        return items[0] if len(items) == 1 else nodes.Choice(items)

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if self._skipped():
                continue
            char = self.text[self.at]
            if char in "*+?" or (char == "{" and _INTERVAL.match(self.text, self.at)):
                if not items:
                    self.fail("a quantifier with nothing before it")
                items.append(self._quantified(items.pop()))
            elif (found := self._one(char)) is not None:
                items.append(found)
        return items[0] if len(items) == 1 else Sequence(items)

    def _skipped(self) -> bool:
        """Comments, and white space with (?x)."""
        text, at = self.text, self.at
        if text.startswith("(?#", at):
            end = text.find(")", at)
            if end < 0:
                self.fail("a comment without an end")
            self.at = end + 1
            return True
        if self.options.extended and (text[at].isspace() or text[at] == "#"):
            end = text.find("\n", at) if text[at] == "#" else at
            self.at = len(text) if end < 0 else end + 1
            return True
        return False

    def _one(self, char: str) -> Node | None:
        if char == "(":
            return self._parenthesis()
        if char == "[":
            return nodes.Set(self.bracket(self.options.words), self.options.icase)
        if char == "\\":
            return self._escape()
        self.at += 1
        if char == ".":
            return nodes.Any(self.options.newline)
        if char in "^$":
            return nodes.Anchor(char)
        return nodes.Text(char, self.options.icase)

    def _quantified(self, item: Node) -> Node:
        char = self.text[self.at]
        interval = _INTERVAL.match(self.text, self.at)
        if interval is not None:
            self.at = interval.end()
            low, comma, high, only_high = interval.groups()
            least = int(low or 0)
            most = int(only_high) if only_high else int(high) if high else None if comma else least
            if max(least, most or 0) > _REPEAT_MAX:
                self.fail("too large a repetition")
            if most is not None and most < least:
                self.fail("upper is smaller than lower in repeat range")
            if self.text.startswith("?", self.at) and least != most:
                self.at += 1
                return nodes.Repeat(item, least, most, "?")
            return nodes.Repeat(item, least, most)
        self.at += 1
        least, most = _QUANTIFIERS[char]
        mode = self.text[self.at : self.at + 1]
        if mode in {"?", "+"}:
            self.at += 1
            return nodes.Repeat(item, least, most, mode)
        return nodes.Repeat(item, least, most)

    def _parenthesis(self) -> Node | None:
        text, at = self.text, self.at
        if match := _NAMED.match(text, at):
            name = match[1] if match[1] is not None else match[2]
            if not name or name[0].isdigit() or name[0] == "-":
                self.fail(f"invalid group name <{name}>")
            self.at = match.end()
            return self._closed("capture", name)
        for head, kind in _LOOKS.items():
            if text.startswith(head, at):
                self.at += len(head)
                return self._closed(kind)
        if text.startswith("(?~", at):
            return self._absent()
        if match := _CONDITION.match(text, at):
            return self._condition(match)
        if match := _OPTIONS.match(text, at):
            return self._option(match)
        if text.startswith("(?", at):
            self.fail(f"undefined group option {text[at : at + 4]}")
        self.at += 1
        return self._closed("" if self._named else "capture")

    def _closed(self, kind: str, name: str = "") -> nodes.Group:
        if kind == "capture":
            self._groups += 1
            if name:
                self._names.append(name)
        inner = self._choice()
        self._close()
        return nodes.Group(kind, inner, name)

    def _close(self) -> None:
        if not self.text.startswith(")", self.at):
            self.fail("a group without its )")
        self.at += 1

    def _option(self, match: re.Match[str]) -> Node | None:
        self.at = match.end()
        before = self.options
        on, off = match[1], match[2] or ""
        for names, value in ((on, True), (off, False)):
            for name in names:
                field = {"i": "icase", "m": "newline", "x": "extended"}.get(name)
                self.options = replace(self.options, **({field: value} if field else {"words": name}))
        if match[3] == ")":  # for the rest of the group, its alternatives included
            rest = self._choice()
            self.options = before
            return nodes.Group("", rest)
        inner = self._closed("")
        self.options = before
        return inner

    def _absent(self) -> Node:
        self.at += 3
        inner = self._choice()
        self._close()
        items = inner.items if isinstance(inner, Sequence) else [inner]
        text = "".join([item.text for item in items if isinstance(item, nodes.Text)])
        if not text or len(text) != sum(len(item.text) if isinstance(item, nodes.Text) else 1 for item in items):
            self.fail("(?~...) is supported with plain text only; write (?:(?!...).)*")
        return nodes.Absent(text, self.options.icase)

    def _condition(self, match: re.Match[str]) -> Node:
        self.at = match.end()
        name = match[1] or match[2]
        target: int | str = int(match[3]) if name is None else int(name) if name.isdigit() else name
        self._wanted.append(target)
        yes = self._sequence()
        no = None
        if self.text.startswith("|", self.at):
            self.at += 1
            no = self._sequence()
        self._close()
        return nodes.Condition(target, yes, no)

    def _escape(self) -> Node:
        at, icase = self.at, self.options.icase
        char = self.text[at + 1 : at + 2]
        if char in _ANCHORS and char:
            self.at += 2
            return nodes.Anchor("\\" + char)
        if char in {"R", "X"}:
            self.at += 2
            return nodes.Special(char)
        if char in {"k", "g"} and (match := _TARGET.match(self.text, at + 2)):
            self.at = match.end()
            target = self._target(match[1] if match[1] is not None else match[2])
            if char == "k":
                return nodes.Reference(target, icase)
            return nodes.Call(target)
        if char in set("123456789"):
            digits = re.compile(r"\d+").match(self.text, at + 1)
            assert digits is not None
            number = int(digits[0])
            if number <= 9 or number <= self._groups:
                self.at = digits.end()
                if self._named:
                    self.fail("numbered backref/call is not allowed (use name)")
                self._wanted.append(number)
                return nodes.Reference(number, icase)
        if (found := self.set_escape(self.options.words)) is not None:
            return nodes.Set(found, icase)
        return nodes.Text(self.characters(), icase)

    def _target(self, name: str) -> int | str:
        if re.fullmatch(r"[+-]?\d+", name):
            if self._named and name != "0":
                self.fail("numbered backref/call is not allowed (use name)")
            number = int(name)
            if name[0] == "-":
                number += self._groups + 1
            elif name[0] == "+":
                number += self._groups
            if number < 0 or (number == 0 and name != "0"):
                self.fail(f"there is no group {name}")
            self._wanted.append(number)
            return number
        if re.search(r"[+-]\d+$", name):
            self.fail(f"a level of recursion, <{name}>, is not supported")
        self._wanted.append(name)
        return name


def _without_escapes(text: str) -> str:
    return re.sub(r"\\.", "", text, flags=re.DOTALL)
