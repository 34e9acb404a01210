"""Python expressions, a whitelist of syntax: Python's own parser reads them, and this module writes them anew.

What is written names constants, variables of the event and functions of ours only; there is no attribute in it, so
there is no way from a value to its class. Methods are functions that look at the type of the value. What could make
much of little (repetition, powers, widths, shifts) goes through functions with a bound.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions import python_methods as methods
from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.ruby_emit import Namespace, Piece
from headrace.plugins.registry import near

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEPTH_MAX: Final = 40
_LENGTH_MAX: Final = 4096
_BINARY: Final[Mapping[type[ast.operator], str]] = {
    ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.RShift: ">>",
}  # fmt: skip
_BOUNDED: Final[Mapping[type[ast.operator], Any]] = {
    ast.Add: methods.add,
    ast.Mult: methods.multiply,
    ast.Pow: methods.power,
    ast.Mod: methods.modulo,
    ast.LShift: methods.shift,
}
_COMPARE: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_UNARY: Final[Mapping[type[ast.unaryop], str]] = {ast.Not: "not ", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}


class Converter:
    """Writes one expression. variables: their pieces."""

    def __init__(self, space: Namespace, variables: Mapping[str, Piece]) -> None:
        self.space = space
        self.variables = variables
        self._depth = 0
        self._locals: list[str] = []
        self._loops = 0

    def piece(self, text: str) -> Piece:
        """The piece of an expression. Raises Refused."""
        if len(text) > _LENGTH_MAX:
            raise Refused(f"an expression of {len(text)} characters is too long")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            message = error.msg if isinstance(error, SyntaxError) else str(error)
            raise Refused(f"invalid Python: {message}", (getattr(error, "offset", None) or 1) - 1) from None
        return Piece(self.write(tree.body))

    def write(self, node: ast.expr) -> str:
        """The text of a node."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self.refused(node, "nested too deeply")
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            raise self.refused(node, f"{type(node).__name__} is not supported")
        found: str = handler(node)
        self._depth -= 1
        return found

    @staticmethod
    def refused(node: ast.expr, message: str, hint: str = "") -> Refused:
        """The error for a place."""
        return Refused(message, node.col_offset, hint)

    def call(self, function: Any, *args: str) -> str:
        """The text of a call of a function of ours."""
        return f"{self.space.function(function)}({', '.join(args)})"

    def _constant(self, node: ast.Constant) -> str:
        value = node.value
        if value is None or isinstance(value, bool):
            return repr(value)
        if isinstance(value, int) and value.bit_length() > 512:
            raise self.refused(node, "the number is too large")
        if not isinstance(value, (int, float, str)):
            raise self.refused(node, f"{type(value).__name__} is not supported")
        return self.space.constant(value)

    def _name(self, node: ast.Name) -> str:
        if node.id in self._locals:
            return "v_" + node.id
        found = self.variables.get(node.id)
        if found is None:
            known = sorted({*self.variables, *methods.FUNCTIONS})
            close = near(node.id, known)
            raise self.refused(
                node, f'unknown name "{node.id}"', f"did you mean {close}?" if close else "known: " + ", ".join(known)
            )
        return found.code

    def _list(self, node: ast.List | ast.Tuple) -> str:
        return f"[{self._items(node.elts)}]"

    _tuple = _list

    def _items(self, nodes: Sequence[ast.expr]) -> str:
        return ", ".join([self.write(item) for item in nodes])

    def _dict(self, node: ast.Dict) -> str:
        pairs = []
        for key, value in zip(node.keys, node.values, strict=True):
            pairs.append(f"**{self.write(value)}" if key is None else f"{self.write(key)}: {self.write(value)}")
        return "{" + ", ".join(pairs) + "}"

    def _boolop(self, node: ast.BoolOp) -> str:
        sign = " and " if isinstance(node.op, ast.And) else " or "
        return f"({sign.join([self.write(value) for value in node.values])})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        return f"({_UNARY[type(node.op)]}{self.write(node.operand)})"

    def _binop(self, node: ast.BinOp) -> str:
        left, right = self.write(node.left), self.write(node.right)
        bounded = _BOUNDED.get(type(node.op))
        if bounded is not None:
            return self.call(bounded, left, right)
        sign = _BINARY.get(type(node.op))
        if sign is None:
            raise self.refused(node, "this operator is not supported")
        return f"({left} {sign} {right})"

    def _compare(self, node: ast.Compare) -> str:
        parts = [self.write(node.left)]
        for operator, right in zip(node.ops, node.comparators, strict=True):
            parts += (_COMPARE[type(operator)], self.write(right))
        return f"({' '.join(parts)})"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"({self.write(node.body)} if {self.write(node.test)} else {self.write(node.orelse)})"

    def _subscript(self, node: ast.Subscript) -> str:
        value = self.write(node.value)
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            return f"{value}[{':'.join(['' if part is None else self.write(part) for part in parts])}]"
        return f"{value}[{self.write(node.slice)}]"

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        parts: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                spec = part.format_spec
                if spec is not None and not (
                    isinstance(spec, ast.JoinedStr) and all(isinstance(one, ast.Constant) for one in spec.values)
                ):
                    raise self.refused(part, "a format within a format is not supported")
                text = "".join([str(one.value) for one in spec.values if isinstance(one, ast.Constant)]) if spec else ""
                code = self.space.constant(text)
                parts.append(self.call(methods.formatted, self.write(part.value), code, str(int(part.conversion))))
            else:
                parts.append(self.write(part))
        return self.call(methods.joined, *parts)

    def _call(self, node: ast.Call) -> str:
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(one.arg is None for one in node.keywords):
            raise self.refused(node, "* and ** in a call are not supported")
        args = [self.write(arg) for arg in node.args]
        for keyword in node.keywords:
            if keyword.arg not in methods.KEYWORDS:
                raise self.refused(node, f'the argument "{keyword.arg}" is not supported')
            args.append(f"{keyword.arg}={self.write(keyword.value)}")
        if isinstance(node.func, ast.Attribute):
            method = methods.METHODS.get(node.func.attr)
            if method is None:
                close = near(node.func.attr, sorted(methods.METHODS))
                raise self.refused(
                    node, f'the method "{node.func.attr}" is not supported', f"did you mean {close}?" * bool(close)
                )
            return self.call(method, self.write(node.func.value), *args)
        if isinstance(node.func, ast.Name) and node.func.id in methods.FUNCTIONS:
            return self.call(methods.FUNCTIONS[node.func.id], *args)
        raise self.refused(node, "this cannot be called", "known functions: " + ", ".join(sorted(methods.FUNCTIONS)))

    def _attribute(self, node: ast.Attribute) -> str:
        raise self.refused(
            node, f'the attribute "{node.attr}" is not supported', 'fields of a record are read as record["name"]'
        )

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, close: str) -> str:
        if len(node.generators) != 1 or self._loops:
            raise self.refused(node, "a comprehension has one for, and none within")
        loop = node.generators[0]
        if loop.is_async:
            raise self.refused(node, "async is not supported")
        source = self.call(methods.iterated, self.write(loop.iter))
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        names = []
        for target in targets:
            if not isinstance(target, ast.Name):
                raise self.refused(node, "a name is needed behind for")
            names.append(target.id)
        self._loops += 1
        self._locals += names
        if isinstance(node, ast.DictComp):
            body = f"{self.write(node.key)}: {self.write(node.value)}"
        else:
            body = self.write(node.elt)
        tests = "".join([f" if {self.write(test)}" for test in loop.ifs])
        del self._locals[len(self._locals) - len(names) :]
        self._loops -= 1
        head = ", ".join(["v_" + name for name in names])
        return f"{close[0]}{body} for {head} in {source}{tests}{close[1]}"

    def _listcomp(self, node: ast.ListComp) -> str:
        return self._comprehension(node, "[]")

    def _generatorexp(self, node: ast.GeneratorExp) -> str:
        return self._comprehension(node, "[]")

    def _dictcomp(self, node: ast.DictComp) -> str:
        return self._comprehension(node, "{}")
