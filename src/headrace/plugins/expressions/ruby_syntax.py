"""The grammar of the Ruby subset: text -> nodes. Whatever is not read here is refused."""

from __future__ import annotations

import re
from typing import Final

from headrace.plugins.expressions.nodes import Block, Node
from headrace.plugins.expressions.ruby_constructs import METHOD, WORDS, Constructs
from headrace.plugins.expressions.ruby_words import NAME

_DEPTH_MAX: Final = 60
_BINARY: Final = (
    ("||",),
    ("&&",),
    ("<=>", "===", "==", "!=", "=~", "!~"),
    ("<=", ">=", "<", ">"),
    ("|", "^"),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""From loose to tight."""
_SYMBOL_KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*[?!]?):(?!:)", re.ASCII)


class Parser(Constructs):
    """Reads one expression."""

    def whole(self) -> Node:
        """All of the text."""
        found = self.program("")
        if self.at < len(self.text):
            self.refuse(f"unexpected {self.text[self.at : self.at + 10]!r}")
        return found

    # Statements.

    def program(self, end: str) -> Node:
        """Statements up to `end`, which is not read: "" (all), "}" or ")"."""
        begin = self.at
        items: list[Node] = []
        while True:
            char = self.skip(lines=True)
            if char == ";":
                self.at += 1
                continue
            if not char:
                if end:
                    self.refuse(f"{end} is missing")
                break
            if char == end or (end == "end" and self.next_word() in {"end", "else", "elsif", "when", "rescue"}):
                break
            items.append(self.statement())
            if self.skip() not in {";", "\n", end, ""} and not (end == "end" and self.next_word()):
                self.refuse(f"unexpected {self.text[self.at : self.at + 10]!r}")
        if not items:
            return Node("literal", (None,), begin)
        return items[0] if len(items) == 1 else Node("many", (items,), begin)

    def statement(self) -> Node:
        """An expression with its modifiers."""
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            self.refuse("nested too deeply")
        found = self.loose()
        while word := self.word("if", "unless", "rescue"):
            other = self.loose()
            nothing = Node("literal", (None,), self.at)
            if word == "rescue":
                found = Node("rescue", (found, other), found.at)
            else:
                found = Node("if", (other, *((found, nothing) if word == "if" else (nothing, found))), found.at)
        self.depth -= 1
        return found

    def loose(self) -> Node:
        """`not`, `and`, `or`."""
        if self.word("not"):
            return Node("not", (self.loose(),), self.at)
        found = self.expression()
        while word := self.word("and", "or"):
            right = Node("not", (self.expression(),), self.at) if self.word("not") else self.expression()
            found = Node("binary", ("&&" if word == "and" else "||", found, right), found.at)
        return found

    def expression(self) -> Node:
        """An assignment, or a ternary."""
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            self.refuse("nested too deeply")
        char = self.skip()
        match = (
            re.compile(r"([a-z_]\w*)\s*(\|\||&&|[-+*/])?=(?![=~>])", re.ASCII).match(self.text, self.at)
            if char
            else None
        )
        if match is not None and match[1] not in WORDS:
            begin = self.at
            self.at = match.end()
            value = self.expression()
            if match[2]:
                value = Node("binary", (match[2], Node("name", (match[1],), begin), value), begin)
            found = Node("assign", (match[1], value), begin)
        else:
            found = self.ternary()
        self.depth -= 1
        return found

    def ternary(self) -> Node:
        """c ? a : b."""
        condition = self.range()
        if self.skip() == "?":
            self.at += 1
            self.skip(lines=True)
            yes = self.expression()
            self.skip(lines=True)
            self.need(":")
            self.skip(lines=True)
            return Node("if", (condition, yes, self.expression()), condition.at)
        if self.text.startswith("=", self.at) and not self.text.startswith(("==", "=~", "=>"), self.at):
            self.refuse(
                "records and texts cannot be changed here", hint="give the field in <record>, or use remove_keys"
            )
        return condition

    def range(self) -> Node:
        """a..b and a...b."""
        begin = self.at
        low = Node("literal", (None,), begin) if self.text.startswith("..", self.at) else self.binary(0)
        self.skip()
        if self.text.startswith("..", self.at):
            exclusive = self.text.startswith("...", self.at)
            self.at += 2 + exclusive
            open_end = self.skip() in {"]", ")", ""}
            high = Node("literal", (None,), self.at) if open_end else self.binary(0)
            return Node("range", (low, high, exclusive), begin)
        return low

    def binary(self, level: int) -> Node:
        """Operators of one level and tighter."""
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while True:
            self.skip()
            sign = next((sign for sign in _BINARY[level] if self.text.startswith(sign, self.at)), "")
            following = self.text[self.at : self.at + len(sign) + 1]
            if sign in {"<", "<="} and self.text.startswith("<=>", self.at):
                return left
            if not sign or following in {"||=", "&&=", "+=", "-=", "*=", "/=", "&.", "|="}:
                return left
            if sign in {"&", "|"} and following in {"&&", "||"}:
                return left
            self.at += len(sign)
            self.skip(lines=True)
            left = Node("binary", (sign, left, self.binary(level + 1)), left.at)

    def unary(self) -> Node:
        """!, - and **."""
        char = self.skip()
        begin = self.at
        if char == "!" and not self.text.startswith(("!=", "!~"), begin):
            self.at += 1
            return Node("not", (self.unary(),), begin)
        if self.text.startswith("->", begin):
            self.refuse("unexpected ->")
        if char == "-" and not self.text[begin + 1 : begin + 2].isspace():
            self.at += 1
            return Node("minus", (self.unary(),), begin)
        found = self.postfix(self.primary())
        if self.take("**"):
            return Node("binary", ("**", found, self.unary()), begin)
        return found

    # What follows a value.

    def postfix(self, found: Node) -> Node:
        """Methods and indexes."""
        while True:
            if self.text.startswith("[", self.at):
                begin = self.at
                self.at += 1
                found = Node("index", (found, self.arguments("]")), begin)
                continue
            before = self.at
            self.skip(lines=True)
            safe = self.text.startswith("&.", self.at)
            if safe or (self.text.startswith(".", self.at) and not self.text.startswith("..", self.at)):
                self.at += 1 + safe
                self.skip()
                found = self.call(found, safe=safe)
            elif self.text.startswith("::", self.at):
                self.refuse("constants within others are not supported")
            else:
                self.at = before
                return found

    def call(self, receiver: Node | None, *, safe: bool = False) -> Node:
        """A method with its arguments and block."""
        begin = self.at
        match = METHOD.match(self.text, self.at)
        if match is None:
            self.refuse("the name of a method is needed")
        name = match[0]
        self.at = match.end()
        args: list[Node] = []
        block: Block | None = None
        if self.text.startswith("(", self.at):
            self.at += 1
            args = self.arguments(")")
            if args and args[-1].kind == "to_proc":
                block = args.pop().parts[0]
        elif self.text[self.at : self.at + 1] == " " and self.text[self.at : self.at + 3].lstrip()[:1] in {'"', "'"}:
            args = [self.expression()]
            while self.take(","):
                args.append(self.expression())
        if block is None:
            block = self.block()
        return Node("call", (receiver, name, args, block, safe), begin)

    def arguments(self, close: str) -> list[Node]:
        """Values up to `close`, which is read; `name: value` at the end becomes a hash."""
        args: list[Node] = []
        pairs: list[tuple[Node, Node]] = []
        while self.skip(lines=True) != close:
            begin = self.at
            if self.text.startswith("&:", self.at):
                self.at += 2
                match = METHOD.match(self.text, self.at)
                if match is None:
                    self.refuse("the name of a method is needed")
                self.at = match.end()
                args.append(Node("to_proc", (Block([], None, match[0], begin),), begin))
            elif match := _SYMBOL_KEY.match(self.text, self.at):
                self.at = match.end()
                pairs.append((Node("literal", (match[1],), begin), self.expression()))
            else:
                value = self.expression()
                if self.take("=>"):
                    pairs.append((value, self.expression()))
                else:
                    args.append(value)
            self.skip(lines=True)
            if not self.take(","):
                self.skip(lines=True)
                break
        self.need(close)
        if pairs:
            args.append(Node("hash", (pairs,), self.at))
        return args

    def block(self) -> Block | None:
        """{ |a, b| ... } or do |a, b| ... end, if one is next."""
        before = self.at
        begin = self.at
        if self.skip() == "{":
            self.at += 1
            close = "}"
        elif self.word("do"):
            close = "end"
        else:
            self.at = before
            return None
        names: list[str] = []
        if self.take("|"):
            while not self.take("|"):
                self.skip()
                self.take("(")
                match = NAME.match(self.text, self.at)
                if match is None:
                    self.refuse("the name of a block's argument is needed")
                names.append(match[0])
                self.at = match.end()
                self.take(")")
                self.take(",")
        body = self.program(close)
        if close == "}":
            self.at += 1
        elif not self.word("end"):
            self.refuse("end is missing")
        return Block(names, body, "", begin)
