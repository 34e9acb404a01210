"""The Ruby inside `"#{...}"` of fluent.conf, as far as people write it in configurations.

Evaluated: ENV[...], ENV.fetch (default or block), ENV.key?, hostname, Socket.gethostname, worker_id,
Dir.pwd, File.join, use_nil, use_default, string, integer and float literals, nil, true, false, ||, &&, or,
and, !, ==, !=, + - * / %, cond ? a : b, raise "text", [index] and the methods of `ruby_values.METHODS`.
Everything else is refused with its place: this is a configuration, not a program. As in Ruby, the right
side of || and the branch not taken are not evaluated, so `ENV['X'] || use_default` works.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.conf.ruby_values import (
    METHODS,
    Unsupported,
    call_method,
    file_join,
    index_of,
    operation,
    text_of,
    to_s,
    truthy,
)
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.errors import Place

HINT = (
    "supported are ENV['X'], ENV.fetch, hostname, worker_id, Dir.pwd, File.join, use_nil, use_default, "
    "literals, ||, + and ?:; for anything else set an environment variable"
)
_DEPTH_MAX = 40
_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*[?!]?")
_NUMBER = re.compile(r"\d[\d_]*(?:\.\d+)?")
_OPERATORS = re.compile(r"\|\||&&|==|!=|[-+*/%]|or\b|and\b")
_RANK = {"or": 1, "and": 1, "||": 2, "&&": 3, "==": 4, "!=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}


class UseNil(Exception):
    """`use_nil` was evaluated: the whole value is nil."""


class UseDefault(Exception):
    """`use_default` was evaluated: the whole value is the parameter's default."""


@dataclass(frozen=True)
class Surroundings:
    """What embedded Ruby can see. worker_id: "" in the master, as in Fluentd. folder: what Dir.pwd is."""

    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    hostname: str = field(default_factory=lambda: os.uname().nodename)
    worker_id: str = ""
    folder: Callable[[], str] = os.getcwd


def evaluate(text: str, at: int, place: Place, around: Surroundings) -> tuple[str, int]:
    """Evaluate the code that begins at `at`, after `#{`; return its text and the offset after `}`.

    Raises UseNil, UseDefault, and ConfError for code that is wrong or not supported.
    """
    parser = _Parser(text, at, place, around)
    try:
        thunk = parser.program()
        return to_s(thunk()), parser.at
    except Unsupported as error:
        code = _extent(text, at).split("\n", maxsplit=1)[0]
        why = f": {error}" if str(error) else ""
        raise ConfError(f"embedded Ruby is not supported here: #{{{code}}}{why}", place, hint=HINT) from None


def after(text: str, at: int) -> int:
    """Return the offset after the `}` that ends the code at `at`, evaluated or not."""
    return min(len(text), at + len(_extent(text, at, limit=len(text))) + 1)


def _extent(text: str, at: int, limit: int = 80) -> str:
    depth, quote, end = 0, "", at
    while end < len(text):
        char = text[end]
        if char == "\\":
            end += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                break
            depth -= 1
        end += 1
    code = text[at:end]
    return code if len(code) <= limit else code[: limit - 3] + "..."


class _Parser:
    def __init__(self, text: str, at: int, place: Place, around: Surroundings) -> None:
        self.text = text
        self.at = at
        self.place = place
        self.around = around
        self.depth = 0

    def program(self) -> Callable[[], Any]:
        if self.take("}"):
            return lambda: ""
        thunk = self.expression()
        self.need("}")
        return thunk

    def peek(self) -> str:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches always
        return self.text[self.at : self.at + 1]

    def take(self, sign: str) -> bool:
        self.peek()
        if self.text.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.take(sign):
            if self.peek() == "":
                raise Unsupported("it has no end")
            raise Unsupported(f"unexpected {self.text[self.at : self.at + 12].splitlines()[0]!r}")

    def expression(self) -> Callable[[], Any]:
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise Unsupported("it is nested too deeply")
        condition = self.binary(1)
        if self.take("?"):
            yes = self.expression()
            self.need(":")
            no = self.expression()
            self.depth -= 1
            return lambda: yes() if truthy(condition()) else no()
        self.depth -= 1
        return condition

    def binary(self, rank: int) -> Callable[[], Any]:
        left = self.unary()
        while True:
            self.peek()
            match = _OPERATORS.match(self.text, self.at)
            if not match or _RANK[match[0]] < rank:
                return left
            self.at = match.end()
            left = operation(match[0], left, self.binary(_RANK[match[0]] + 1))

    def unary(self) -> Callable[[], Any]:
        negations = 0
        while not self.text.startswith("!=", self.at) and self.take("!"):
            negations += 1
        value = self.postfix(self.primary())
        if negations:
            return lambda: truthy(value()) == (negations % 2 == 0)
        return value

    def primary(self) -> Callable[[], Any]:
        char = self.peek()
        if char in {"'", '"'}:
            return self.quoted(char)
        if char == "(":
            self.at += 1
            inner = self.expression()
            self.need(")")
            return inner
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            if len(match[0]) > 20:
                raise Unsupported("the number is too long")
            number = float(match[0].replace("_", "")) if "." in match[0] else int(match[0].replace("_", ""))
            return lambda: number
        if match := _WORD.match(self.text, self.at):
            self.at = match.end()
            return self.word(match[0])
        raise Unsupported

    def word(self, word: str) -> Callable[[], Any]:
        around = self.around
        constants: dict[str, object] = {
            "nil": None,
            "true": True,
            "false": False,
            "hostname": around.hostname,
            "worker_id": around.worker_id,
        }
        if word in constants:
            return lambda: constants[word]
        if word in {"use_nil", "use_default"}:
            return lambda: _raise(UseNil() if word == "use_nil" else UseDefault())
        if word == "ENV":
            return self.environment()
        if word == "Socket" and self.take(".") and self.take("gethostname"):
            self.arguments()
            return lambda: around.hostname
        if word == "Dir" and self.take(".") and (self.take("pwd") or self.take("getwd")):
            if self.arguments():
                raise Unsupported
            return around.folder
        if word == "File" and self.take(".") and self.take("join"):
            parts = self.arguments()
            return lambda: file_join(*(text_of(part()) for part in parts)) if parts else ""
        if word == "raise":
            text = self.expression()
            return lambda: _raise(ConfError(to_s(text()), self.place))
        raise Unsupported

    def environment(self) -> Callable[[], Any]:
        env, place = self.around.env, self.place
        if self.take("["):
            name = self.expression()
            self.need("]")
            return lambda: env.get(text_of(name()))
        self.need(".")
        match = _WORD.match(self.text, self.at)
        method = match[0] if match else ""
        self.at += len(method)
        given = self.arguments() if self.peek() == "(" else [self.expression()]
        if method in {"key?", "has_key?", "include?", "member?"} and len(given) == 1:
            return lambda: text_of(given[0]()) in env
        if method != "fetch" or not 1 <= len(given) <= 2:
            raise Unsupported
        if self.peek() == "{":
            given = [given[0], self.block()]

        def fetch() -> object:
            name = text_of(given[0]())
            if name in env:
                return env[name]
            if len(given) == 2:
                return given[1]()
            raise ConfError(f"the environment variable {name} is not set", place, hint="set it, or give a default")

        return fetch

    def block(self) -> Callable[[], Any]:
        self.need("{")
        if self.take("|"):
            self.peek()
            match = _WORD.match(self.text, self.at)
            self.at += len(match[0]) if match else 0
            self.need("|")
        inner = self.expression()
        self.need("}")
        return inner

    def arguments(self) -> list[Callable[[], Any]]:
        found: list[Callable[[], Any]] = []
        if self.text.startswith("(", self.at):
            self.at += 1
            while not self.take(")"):
                found.append(self.expression())
                if not self.take(","):
                    self.need(")")
                    break
        return found

    def postfix(self, value: Callable[[], Any]) -> Callable[[], Any]:
        while True:
            # Ruby lets a method call follow on the next line, but an index must touch its object.
            if self.text.startswith("[", self.at):
                self.at += 1
                index = self.expression()
                self.need("]")
                value = index_of(value, index)
            elif self.peek() == "." or self.text.startswith("&.", self.at):
                self.at += 1 if self.text[self.at] == "." else 2
                match = _WORD.match(self.text, self.at)
                if not match or match[0] not in METHODS:
                    raise Unsupported(f"no method {match[0]}" if match else "")
                self.at = match.end()
                value = call_method(match[0], value, self.arguments())
            else:
                return value

    def quoted(self, quote: str) -> Callable[[], Any]:
        parts: list[Callable[[], Any]] = []
        self.at += 1
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                raise Unsupported("a string has no end")
            self.at += 1
            if char == quote:
                return lambda: "".join(to_s(part()) for part in parts)
            if char == "\\":
                follow = self.text[self.at : self.at + 1]
                self.at += 1
                char = _unescape(follow, quote)
            elif char == "#" and quote == '"' and self.text.startswith("{", self.at):
                self.at += 1
                self.depth += 1
                if self.depth > _DEPTH_MAX:
                    raise Unsupported("it is nested too deeply")
                parts.append(self.program())
                self.depth -= 1
                continue
            parts.append(lambda char=char: char)  # type: ignore[misc]  # mypy does not infer a lambda's default


def _unescape(char: str, quote: str) -> str:
    if quote == "'":
        return char if char in {"'", "\\"} else "\\" + char
    return {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "s": " "}.get(char, char)


def _raise(error: Exception) -> object:
    raise error
