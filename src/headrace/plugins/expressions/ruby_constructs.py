"""Values and constructs of the Ruby subset: what an expression may begin with."""

from __future__ import annotations

import re
from typing import Final

from headrace.plugins.expressions.nodes import Node
from headrace.plugins.expressions.ruby_words import CONSTANT, NAME, SPACE, Words

METHOD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*[?!]?", re.ASCII)
WORDS: Final = frozenset(
    [
        "if",
        "unless",
        "else",
        "elsif",
        "end",
        "then",
        "and",
        "or",
        "not",
        "nil",
        "true",
        "false",
        "case",
        "when",
        "begin",
        "rescue",
        "do",
        "while",
        "until",
        "for",
        "def",
        "class",
        "module",
        "return",
        "yield",
        "self",
        "super",
        "lambda",
        "proc",
        "loop",
        "ensure",
        "in",
        "redo",
        "retry",
        "next",
        "break",
        "undef",
        "alias",
        "defined?",
        "__FILE__",
        "__method__",
    ]
)
_KEYWORD: Final = re.compile(r"[a-z_]+[?!]?(?![A-Za-z0-9_])", re.ASCII)
_GLOBAL: Final = re.compile(r"\$(?:([1-9])|(~))")


class Constructs(Words):
    """The part of the grammar below operators."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def statement(self) -> Node:
        """An expression with its modifiers."""
        raise NotImplementedError

    def expression(self) -> Node:
        """An assignment, or a ternary."""
        raise NotImplementedError

    def arguments(self, close: str) -> list[Node]:
        """Values up to `close`."""
        raise NotImplementedError

    def call(self, receiver: Node | None, *, safe: bool = False) -> Node:
        """A method with its arguments and block."""
        raise NotImplementedError

    # Small steps.

    def skip(self, *, lines: bool = False) -> str:
        """Go over white space (and ends of lines); return the next character, "" at the end."""
        while True:
            match = SPACE.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            if not (lines and self.text.startswith("\n", self.at)):
                return self.text[self.at : self.at + 1]
            self.at += 1

    def take(self, sign: str) -> bool:
        """Read a sign if it is next."""
        self.skip()
        if self.text.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False

    def need(self, sign: str) -> None:
        """Read a sign that must be next."""
        if not self.take(sign):
            self.refuse(f"{sign} is missing" if self.at >= len(self.text) else f"{sign} is needed here")

    def word(self, *words: str) -> str:
        """Read one of the keywords if it is next."""
        self.skip()
        match = _KEYWORD.match(self.text, self.at)
        if match is not None and match[0] in words:
            self.at = match.end()
            return match[0]
        return ""

    def next_word(self) -> str:
        """The keyword that is next, not read."""
        self.skip(lines=True)
        match = _KEYWORD.match(self.text, self.at)
        return match[0] if match is not None and match[0] in WORDS else ""

    # Values.

    def primary(self) -> Node:  # noqa: PLR0911 - one case for each beginning
        """A literal, a name, something in brackets, or a construct with an end."""
        char = self.skip()
        begin = self.at
        if not char:
            self.refuse("the expression has no end")
        if char in "\"'":
            return self.quoted()
        if char in set("0123456789"):
            return self.number()
        if char == "(":
            self.at += 1
            found = self.program(")")
            self.at += 1
            return found
        if char == "[":
            self.at += 1
            return Node("array", (self.arguments("]"),), begin)
        if char == "{":
            return self.hash()
        if char == "/":
            self.at += 1
            return self.pattern()
        if char == "%":
            return self.percent()
        if char == ":":
            return self.symbol()
        if match := _GLOBAL.match(self.text, begin):
            self.at = match.end()
            return Node("matched", (int(match[1]) if match[1] else None,), begin)
        if match := CONSTANT.match(self.text, begin):
            return self.constant(match)
        if match := NAME.match(self.text, begin):
            return self.named(match)
        return self.refuse(f"unexpected {self.text[begin : begin + 10]!r}")

    def symbol(self) -> Node:
        """:name is the text of its name."""
        begin = self.at
        self.at += 1
        if self.text.startswith('"', self.at):
            return self.quoted()
        match = METHOD.match(self.text, self.at) or re.compile(r"[-+*/]").match(self.text, self.at)
        if match is None:
            self.refuse("unexpected :")
        self.at = match.end()
        return Node("literal", (match[0],), begin)

    def hash(self) -> Node:
        """{"a" => 1, b: 2}."""
        begin = self.at
        self.at += 1
        args = self.arguments("}")
        if not args:
            return Node("hash", ([],), begin)
        if len(args) > 1 or args[0].kind != "hash":
            self.refuse("=> is needed in a hash", begin)
        return args[0]

    def constant(self, match: re.Match[str]) -> Node:
        """Time, JSON, ENV and their methods; classes for is_a?."""
        self.at = match.end()
        name = match[0]
        while self.text.startswith("::", self.at) and (inner := CONSTANT.match(self.text, self.at + 2)):
            name += "::" + inner[0]
            self.at = inner.end()
        if name in {"Integer", "Float", "String", "Array"} and self.text.startswith("(", self.at):
            self.at += 1
            return Node("static", ("Kernel", name, self.arguments(")"), None), match.start())
        if name == "ENV" and self.text.startswith("[", self.at):
            self.at += 1
            return Node("static", ("ENV", "[]", self.arguments("]"), None), match.start())
        if self.text.startswith(".", self.at) and not self.text.startswith("..", self.at):
            self.at += 1
            node = self.call(None)
            _, method, args, block, _ = node.parts
            return Node("static", (name, method, args, block), match.start())
        return Node("constant", (name,), match.start())

    def named(self, match: re.Match[str]) -> Node:
        """A variable, a construct, or a function."""
        name, begin = match[0], match.start()
        if name in {"nil", "true", "false"}:
            self.at = match.end()
            return Node("literal", ({"nil": None, "true": True, "false": False}[name],), begin)
        if name in {"if", "unless"}:
            self.at = match.end()
            return self.conditional(negated=name == "unless")
        if name == "case":
            self.at = match.end()
            return self.case()
        if name == "begin":
            self.at = match.end()
            body = self.program("end")
            other = None
            if self.word("rescue"):
                self.word("StandardError")
                other = self.program("end")
            if not self.word("end"):
                self.refuse("end is missing")
            return body if other is None else Node("rescue", (body, other), begin)
        if name in WORDS:
            self.refuse(f'"{name}" is not supported')
        if self.text.startswith("(", match.end()) or name in {"require", "format", "sprintf"}:
            self.at = begin
            return self.call(None)
        self.at = match.end()
        return Node("name", (name,), begin)

    def conditional(self, *, negated: bool = False) -> Node:
        """If ... then ... elsif ... else ... end, behind its first word."""
        begin = self.at
        condition = self.statement()
        self.word("then")
        yes = self.program("end")
        no = Node("literal", (None,), self.at)
        self.skip(lines=True)
        if self.word("elsif"):
            no = self.conditional()
        else:
            if self.word("else"):
                no = self.program("end")
                self.skip(lines=True)
            if not self.word("end"):
                self.refuse("end is missing")
        return Node("if", (condition, no, yes) if negated else (condition, yes, no), begin)

    def case(self) -> Node:
        """Case x when a, b then ... else ... end, behind its first word."""
        begin = self.at
        subject = None if self.next_word() == "when" else self.statement()
        branches: list[tuple[list[Node], Node]] = []
        while self.skip(lines=True) == ";":
            self.at += 1
        other = Node("literal", (None,), begin)
        while self.next_word() == "when" and self.word("when"):
            values = [self.expression()]
            while self.take(","):
                self.skip(lines=True)
                values.append(self.expression())
            self.word("then")
            branches.append((values, self.program("end")))
        if self.word("else"):
            other = self.program("end")
            self.skip(lines=True)
        if not branches or not self.word("end"):
            self.refuse("case needs when and end")
        return Node("case", (subject, branches, other), begin)
