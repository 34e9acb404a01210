"""Nodes -> a pattern for one engine: `re`, which is faster, or `regex`, which has more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.conf.onigmo import nodes
from headrace.conf.onigmo.classes import LAST, Class, Property, resolve, union
from headrace.conf.onigmo.nodes import least_width

if TYPE_CHECKING:
    from headrace.conf.onigmo.nodes import Node

RE: Final = "re"
REGEX: Final = "regex"

_LITERAL: Final = frozenset("\\.^$*+?{}[]()|#&-~/ ")
_IN_CLASS: Final = frozenset("\\^]-[&~|#/")
_NEWLINE: Final = r"(?>\r\n|[\n-\r\x85\u2028\u2029])"
_ALL: Final = "(?s:.)"


class LacksError(Exception):
    """The engine has no such thing."""


def quote(text: str) -> str:
    """Characters that stand for themselves, outside of a class."""
    return "".join([_char(ord(char), _LITERAL) for char in text])


def _char(code: int, special: frozenset[str]) -> str:
    char = chr(code)
    if char in special:
        return "\\" + char
    if code < 0x20 or 0x7F <= code <= 0x9F:
        return f"\\x{code:02x}"
    # Lone surrogates are bytes that are not UTF-8; their escapes are clearer than they.
    return f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else char


def alias(name: str) -> str:
    """A name of a group as Python takes it: `foo-bar` is spelled by its bytes."""
    return name if name.isidentifier() and name.isascii() else "_h" + name.encode("utf-8", "surrogateescape").hex()


class Emitter:
    """Writes a pattern for one engine. Raises LacksError."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self._seen: set[str] = set()

    def need(self, what: str) -> None:
        """Only `regex` has it."""
        if self.engine == RE:
            raise LacksError(what)

    def write(self, node: Node) -> str:  # noqa: C901, PLR0911 - one case for each kind of node
        """Return the text of a node, which may stand in a sequence as it is."""
        match node:
            case nodes.Text(text, icase):
                return self._cased(quote(text), icase)
            case nodes.Any(newline):
                return _ALL if newline else "."
            case nodes.Set(cls, icase):
                return self._cased(self.bracket(cls, icase=icase), icase)
            case nodes.Sequence(items):
                return self._sequence(items)
            case nodes.Choice(items):
                return "(?:" + "|".join(map(self.write, items)) + ")"
            case nodes.Group():
                return self._group(node)
            case nodes.Repeat():
                return self._repeat(node)
            case nodes.Anchor(kind):
                return self._anchor(kind)
            case nodes.Special(kind):
                if kind == "R":
                    return _NEWLINE
                self.need(r"\X")
                return r"\X"
            case nodes.Absent(text, icase):
                held = self._cased(quote(text), icase)
                return f"(?:(?:(?!{held}){_ALL})*(?:(?={held}){_ALL}{{0,{len(text) - 1}}})?)"
            case nodes.Reference(target, icase):
                back = f"(?:\\{target})" if isinstance(target, int) else f"(?P={alias(target)})"
                return self._cased(back, icase)
            case nodes.Call(target):
                self.need(r"\g<...>")
                return f"(?{target})" if isinstance(target, int) else f"(?&{alias(target)})"
            case nodes.Condition(target, yes, no):
                name = target if isinstance(target, int) else alias(target)
                other = "" if no is None else "|" + self.write(no)
                return f"(?({name}){self.write(yes)}{other})"
        raise LacksError(type(node).__name__)

    @staticmethod
    def _cased(text: str, icase: bool) -> str:
        return f"(?i:{text})" if icase and any(map(str.isalpha, text)) else text

    def _sequence(self, items: list[Node]) -> str:
        out: list[str] = []
        for index, item in enumerate(items):
            # After the newline that ends a text no line begins in Ruby; it does in Python. Where characters must
            # follow, that makes no difference.
            if isinstance(item, nodes.Anchor) and item.kind == "^" and least_width(nodes.Sequence(items[index + 1 :])):
                out.append("^")
            else:
                out.append(self.write(item))
        return "".join(out)

    def _anchor(self, kind: str) -> str:
        if kind in {"\\G", "\\K"}:
            self.need(kind)
            return kind
        return {"^": r"(?:\A|(?<=\n)(?!\Z))", "$": "$", "\\z": r"\Z", "\\Z": r"(?=\n?\Z)"}.get(kind, kind)

    def _group(self, node: nodes.Group) -> str:
        inner = node.item
        if node.kind == "capture":
            if not node.name:
                return f"({self._bare(inner)})"
            name = alias(node.name)
            if name in self._seen:
                self.need("two groups of one name")
            self._seen.add(name)
            return f"(?P<{name}>{self._bare(inner)})"
        if node.kind in {"<=", "<!"} and self.engine == RE and isinstance(inner, nodes.Choice):
            # `re` wants one width in a lookbehind; each alternative may have its own.
            sides = [f"(?{node.kind}{self.write(item)})" for item in inner.items]
            return "(?:" + ("|" if node.kind == "<=" else "").join(sides) + ")"
        return f"(?{node.kind or ':'}{self._bare(inner)})"

    def _bare(self, node: Node) -> str:
        """The text of a node within parentheses of its own."""
        return "|".join(map(self.write, node.items)) if isinstance(node, nodes.Choice) else self.write(node)

    def _repeat(self, node: nodes.Repeat) -> str:
        text = self.write(node.item)
        if not self._single(node.item):
            text = f"(?:{text})"
        least, most = node.least, node.most
        known = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
        if known is None:
            known = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
        return text + known + node.mode

    @staticmethod
    def _single(node: Node) -> bool:
        """Whether the text of a node is one thing to a quantifier."""
        if isinstance(node, nodes.Text):
            return len(node.text) == 1
        if isinstance(node, nodes.Group):
            return node.kind not in {"=", "!", "<=", "<!"}
        return isinstance(node, (nodes.Any, nodes.Set, nodes.Choice, nodes.Absent))

    def bracket(self, cls: Class, *, icase: bool = False) -> str:
        """A class, brackets included."""
        known = resolve(cls, icase=icase)
        if known is None:
            self.need("a class of Unicode")
            return self._structured(cls)
        negated, ranges = known
        if not ranges:
            return _ALL if negated else "(?!)"
        if ranges == [(0, LAST)]:
            return "(?!)" if negated else _ALL
        low, high = ranges[0]
        if len(ranges) == 1 and low == high and not negated:
            return _char(low, _LITERAL)
        return f"[{'^' * negated}{_spelled(ranges)}]"

    def _structured(self, cls: Class) -> str:
        """A class for `regex` with its sets within sets."""
        inner = _spelled(union(cls.ranges)) if cls.ranges else ""
        for part in cls.parts:
            if isinstance(part, Property):
                inner += f"[^{part.inner}]" if part.negated else part.inner
            else:
                inner += self._structured(part)
        if cls.cuts:
            inner = "&&".join([f"[{inner}]", *map(self._structured, cls.cuts)])
        return f"[{'^' * cls.negated}{inner}]"


def _spelled(ranges: list[tuple[int, int]]) -> str:
    out: list[str] = []
    for low, high in ranges:
        out.append(_char(low, _IN_CLASS))
        if high > low:
            out.append(("-" if high > low + 1 else "") + _char(high, _IN_CLASS))
    return "".join(out)
