# ruff: noqa: D102 - on_KIND emits the nodes of a kind
"""Nodes of the Ruby subset -> Python.

The text that is made holds names of ours only: constants are k0, k1, ..., functions h_NAME and m_NAME, variables of the
expression v_NAME. Literals never become part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.ruby_regexp import compile_ruby
from headrace.plugins.expressions import ruby_kinds, ruby_methods, ruby_static, ruby_values
from headrace.plugins.expressions.nodes import Block, Node, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HELPERS: Final[Mapping[str, Callable[..., Any]]] = {
    "+": ruby_values.add,
    "-": ruby_values.subtract,
    "*": ruby_values.multiply,
    "/": ruby_values.divide,
    "%": ruby_values.modulo,
    "**": ruby_values.power,
    "&": ruby_values.bits_and,
    "|": ruby_values.bits_or,
    "^": ruby_values.bits_xor,
    "<<": ruby_values.shift_left,
    ">>": ruby_values.shift_right,
    "<=>": ruby_values.compare,
    "===": ruby_values.case_equal,
    "=~": ruby_values.match_at,
}
_TESTS: Final[Mapping[str, Callable[..., Any]]] = {
    "==": ruby_values.equal,
    "<": ruby_values.less,
    "<=": ruby_values.less_equal,
    ">": ruby_values.greater,
    ">=": ruby_values.greater_equal,
    "===": ruby_values.case_equal,
}


@dataclass(slots=True)
class Piece:
    """A Python expression. boolean: it is True or False. fixed: it is the same for all events of a batch.

    text: the constant text it is, if it is one. is_text: it is some text.
    """

    code: str
    boolean: bool = False
    fixed: bool = False
    text: str | None = None
    is_text: bool = False


class Namespace:
    """What compiled code may name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"__builtins__": {}, "type": type, "str": str, "Exception": Exception}
        self._known: dict[int, str] = {}
        self._temporary = 0

    def constant(self, value: object) -> str:
        """The name of a constant."""
        name = f"k{len(self.values)}"
        self.values[name] = value
        return name

    def function(self, function: Callable[..., Any]) -> str:
        """The name of a function of ours."""
        found = self._known.get(id(function))
        if found is None:
            found = self._known[id(function)] = f"h{len(self.values)}"
            self.values[found] = function
        return found

    def temporary(self) -> str:
        """A new name for a value in between."""
        self._temporary += 1
        return f"t{self._temporary}"


class Emitter:
    """Turns nodes into pieces. variables: names of the configuration's variables -> their pieces."""

    def __init__(self, space: Namespace, variables: Mapping[str, Piece], static: ruby_static.Static) -> None:
        self.space = space
        self.variables = variables
        self.static = static
        self._locals: list[set[str]] = [set()]
        self.odd = False
        """Whether something was emitted that is of a class which records do not hold: times, ranges, matches."""

    def call_of(self, function: Callable[..., Any], *args: str) -> str:
        """The text of a call of a function of ours."""
        return f"{self.space.function(function)}({', '.join(args)})"

    def emit(self, node: Node) -> Piece:
        """The piece of a node. Raises Refused."""
        handler = getattr(self, "on_" + node.kind)
        try:
            found: Piece = handler(node, *node.parts)
        except Refused as error:
            if error.at < 0:
                error.at = node.at
            raise
        if node.kind in _ODD or (node.kind == "name" and node.parts[0] == "time"):
            self.odd = True
        return found

    def truth(self, node: Node) -> Piece:
        """The piece as a condition."""
        piece = self.emit(node)
        if piece.boolean:
            return piece
        name = self.space.temporary()
        return Piece(f"(({name} := {piece.code}) is not None and {name} is not False)", boolean=True, fixed=piece.fixed)

    def as_text(self, piece: Piece) -> str:
        """The piece as what interpolation makes of it."""
        if piece.text is not None or piece.is_text:
            return piece.code
        name = self.space.temporary()
        return f"({name} if type({name} := {piece.code}) is str else {self.call_of(ruby_kinds.interpolated, name)})"

    # Literals.

    def on_literal(self, _node: Node, value: object) -> Piece:
        if value is None or isinstance(value, bool):
            return Piece(repr(value), boolean=isinstance(value, bool), fixed=True)
        return Piece(self.space.constant(value), fixed=True, text=value if isinstance(value, str) else None)

    def on_text(self, _node: Node, parts: list[Node]) -> Piece:
        return self.concatenated([self.emit(part) for part in parts])

    def concatenated(self, pieces: Sequence[Piece]) -> Piece:
        """Texts one after the other."""
        codes = [self.as_text(piece) for piece in pieces]
        joined = f"({' + '.join(codes)})" if len(codes) < 5 else f'"".join(({", ".join(codes)}))'
        return Piece(joined, fixed=all(piece.fixed for piece in pieces), is_text=True)

    def on_pattern(self, _node: Node, source: str, flags: str) -> Piece:
        try:
            return Piece(self.space.constant(compile_ruby(source, flags)), fixed=True)
        except ValueError as error:
            raise Refused(str(error)) from None

    def on_array(self, _node: Node, items: list[Node]) -> Piece:
        return Piece(f"[{', '.join([self.emit(item).code for item in items])}]")

    def on_hash(self, _node: Node, pairs: list[tuple[Node, Node]]) -> Piece:
        inner = [f"{self.emit(key).code}: {self.emit(value).code}" for key, value in pairs]
        return Piece("{" + ", ".join(inner) + "}")

    def on_range(self, _node: Node, low: Node, high: Node, exclusive: bool) -> Piece:
        return Piece(self.call_of(ruby_kinds.Range, self.emit(low).code, self.emit(high).code, repr(bool(exclusive))))

    def on_constant(self, _node: Node, name: str) -> Piece:
        found = ruby_kinds.CLASSES.get(name)
        if found is None:
            raise Refused(f"the constant {name} is not supported")
        return Piece(self.space.constant(found), fixed=True)

    # Names.

    def on_name(self, node: Node, name: str) -> Piece:
        if any(name in scope for scope in self._locals):
            return Piece(f"v_{name}")
        found = self.variables.get(name)
        if found is None:
            known = ", ".join(sorted(self.variables))
            raise Refused(f'unknown name "{name}"', node.at, f'the field is record["{name}"]; known are {known}')
        return found

    def on_assign(self, node: Node, name: str, value: Node) -> Piece:
        if name in self.variables:
            raise Refused(f'"{name}" cannot be set', node.at)
        if len(self._locals) > 1 and any(name in scope for scope in self._locals[:-1]):
            raise Refused("a block cannot set a variable from outside of it", node.at)
        piece = self.emit(value)
        self._locals[-1].add(name)
        return Piece(f"(v_{name} := {piece.code})", boolean=piece.boolean)

    def on_matched(self, _node: Node, number: int | None) -> Piece:
        return Piece(
            self.call_of(ruby_values.matched, "0" if number is None else str(int(number)), repr(number is None))
        )

    # Control.

    def on_many(self, _node: Node, items: list[Node]) -> Piece:
        return Piece(f"({', '.join([self.emit(item).code for item in items])},)[-1]")

    def on_if(self, _node: Node, condition: Node, yes: Node, no: Node) -> Piece:
        test = self.truth(condition)
        first, second = self.emit(yes), self.emit(no)
        return Piece(
            f"({first.code} if {test.code} else {second.code})",
            boolean=first.boolean and second.boolean,
            fixed=test.fixed and first.fixed and second.fixed,
        )

    def on_case(self, _node: Node, subject: Node | None, branches: list[tuple[list[Node], Node]], other: Node) -> Piece:
        name = self.space.temporary()
        value = self.emit(subject).code if subject is not None else "None"
        code = self.emit(other).code
        for values, result in reversed(branches):
            if subject is None:
                tests = [self.truth(value).code for value in values]
            else:
                tests = [self.call_of(ruby_values.case_equal, self.emit(value).code, name) for value in values]
            code = f"({self.emit(result).code} if {' or '.join(tests)} else {code})"
        return Piece(f"(({name} := {value}), {code})[1]")

    def on_rescue(self, _node: Node, body: Node, other: Node) -> Piece:
        self._locals.append(set())
        code = self.call_of(ruby_values.rescued, f"lambda: {self.emit(body).code}", f"lambda: {self.emit(other).code}")
        self._locals.pop()
        return Piece(code)

    def on_not(self, _node: Node, item: Node) -> Piece:
        piece = self.truth(item)
        return Piece(f"(not {piece.code})", boolean=True, fixed=piece.fixed)

    def on_minus(self, _node: Node, item: Node) -> Piece:
        return Piece(self.call_of(ruby_values.minus, self.emit(item).code))

    # Operators.

    def on_binary(self, _node: Node, sign: str, left: Node, right: Node) -> Piece:
        if sign in {"||", "&&"}:
            return self._logical(sign, left, right)
        first, second = self.emit(left), self.emit(right)
        fixed = first.fixed and second.fixed
        if sign in {"==", "!="}:
            if first.text is not None or second.text is not None:  # equal to a text is a text only
                return Piece(f"({first.code} {sign} {second.code})", boolean=True, fixed=fixed)
            code = self.call_of(ruby_values.equal, first.code, second.code)
            return Piece(code if sign == "==" else f"(not {code})", boolean=True, fixed=fixed)
        if sign == "!~":
            return Piece(f"({self.call_of(ruby_values.match_at, first.code, second.code)} is None)", boolean=True)
        if sign in _TESTS:
            return Piece(self.call_of(_TESTS[sign], first.code, second.code), boolean=True, fixed=fixed)
        return Piece(self.call_of(_HELPERS[sign], first.code, second.code), fixed=fixed and sign != "=~")

    def _logical(self, sign: str, left: Node, right: Node) -> Piece:
        first = self.emit(left)
        second = self.emit(right)
        fixed = first.fixed and second.fixed
        if first.boolean and second.boolean:
            return Piece(f"({first.code} {'or' if sign == '||' else 'and'} {second.code})", boolean=True, fixed=fixed)
        name = self.space.temporary()
        test = f"({name} := {first.code}) is not None and {name} is not False"
        sides = (name, second.code) if sign == "||" else (second.code, name)
        return Piece(f"({sides[0]} if {test} else {sides[1]})", fixed=fixed)

    # Calls.

    def on_index(self, node: Node, receiver: Node, args: list[Node]) -> Piece:
        if not 1 <= len(args) <= 2:
            raise Refused("[ ] takes one or two values", node.at)
        piece = self.emit(receiver)
        pieces = [self.emit(arg) for arg in args]
        fixed = piece.fixed and all(one.fixed for one in pieces)
        if piece.code == "record" and len(args) == 1:
            return Piece(f"record.get({pieces[0].code})")
        return Piece(self.call_of(ruby_methods.index, piece.code, *[one.code for one in pieces]), fixed=fixed)

    def on_call(
        self, node: Node, receiver: Node | None, name: str, args: list[Node], block: Block | None, safe: bool
    ) -> Piece:
        if receiver is None:
            return self.on_static(node, "Kernel", name, args, block)
        function = ruby_methods.find(name, len(args), with_block=block is not None)
        self.odd = self.odd or name in {"class", "match"}
        if receiver.kind == "name" and not any(receiver.parts[0] in scope for scope in self._locals):
            ruby_methods.check_of(receiver.parts[0], name)
        piece = self.emit(receiver)
        codes = [self.emit(arg).code for arg in args]
        if block is not None:
            codes.append(f"block={self.block(block)}")
        fixed = piece.fixed and block is None and all(self.emit(arg).fixed for arg in args) and name not in _CHANGING
        boolean = name in ruby_methods.TESTS
        if not safe:
            return Piece(self.call_of(function, piece.code, *codes), boolean=boolean, fixed=fixed)
        own = self.space.temporary()
        code = f"(None if ({own} := {piece.code}) is None else {self.call_of(function, own, *codes)})"
        return Piece(code, fixed=fixed)

    def on_static(self, node: Node, module: str, name: str, args: list[Node], block: Block | None) -> Piece:
        if module == "Kernel" and name == "require":
            if len(args) != 1 or args[0].kind != "literal" or args[0].parts[0] not in ruby_static.LIBRARIES:
                raise Refused(
                    "this library may not be required; those that may are",
                    node.at,
                    ", ".join(sorted(ruby_static.LIBRARIES)),
                )
            return Piece("None", fixed=True)
        function = self.static.find(module, name, len(args), with_block=block is not None)
        codes = [self.emit(arg).code for arg in args]
        if block is not None:
            codes.append(f"block={self.block(block)}")
        return Piece(self.call_of(function, *codes))

    def block(self, block: Block) -> str:
        """A function of ours around a block."""
        if block.body is None:
            function = ruby_methods.find(block.method, 0, with_block=False)
            return self.call_of(ruby_kinds.Block, self.space.function(function), "1")
        self._locals.append(set(block.names))
        names = block.names or ["_1"]
        if not block.names:
            self._locals[-1].add("it")
            names = ["it"]
        body = self.emit(block.body).code
        self._locals.pop()
        head = ", ".join([f"v_{name}" for name in names])
        return self.call_of(ruby_kinds.Block, f"(lambda {head}: {body})", str(len(names)))

    def on_to_proc(self, node: Node, _block: Block) -> Piece:
        raise Refused("&:name belongs at the end of a method's arguments", node.at)


_ODD: Final = frozenset({"range", "constant", "pattern", "matched", "static"})
_CHANGING: Final = frozenset({"match", "match?", "sub", "gsub"})
"""Methods that set $~, or whose cost is better met once for each event."""
