"""What expressions see, and the function that is made of them: one for all fields of a filter, over a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.python import Converter
from headrace.plugins.expressions.ruby_emit import Emitter, Namespace, Piece
from headrace.plugins.expressions.ruby_kinds import held, interpolated
from headrace.plugins.expressions.ruby_static import Static
from headrace.plugins.expressions.ruby_syntax import Parser
from headrace.plugins.expressions.ruby_time import Moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.pipeline.event import Event, Record

    Run = Callable[[str, Sequence[Event], Callable[[str, int, Record, Exception], Any]], list[Event]]
    """(tag, events, what to do with one that fails) -> events."""


def prefixes(parts: list[str]) -> list[str]:
    """tag_prefix: of a.b.c a, a.b, a.b.c."""
    return [".".join(parts[: index + 1]) for index in range(len(parts))]


def suffixes(parts: list[str]) -> list[str]:
    """tag_suffix: of a.b.c a.b.c, b.c, c."""
    return [".".join(parts[index:]) for index in range(len(parts))]


def parts_of(tag: str) -> list[str]:
    """A tag's parts as Ruby splits them: empty ones at the end go away."""
    parts = tag.split(".")
    while parts and not parts[-1]:
        parts.pop()
    return parts


_TAGS: Final = {
    "tag_parts": "tag_parts = parts_of(tag)",
    "tag_prefix": "tag_prefix = prefixes(parts_of(tag))",
    "tag_suffix": "tag_suffix = suffixes(parts_of(tag))",
}


class Program:
    """Collects the fields and makes the function.

    language: "ruby", "python". now: nanoseconds since the epoch.
    """

    def __init__(self, *, hostname: str, worker_id: int, now: Callable[[], int], language: str = "ruby") -> None:
        self.space = Namespace()
        self.lines: list[str] = []
        self._hoisted: list[str] = []
        self._plain: list[str] = []
        self.language = language
        self.variables = {
            "tag": Piece("tag", fixed=True),
            **{name: Piece(name, fixed=True) for name in _TAGS},
            "record": Piece("record"),
            "hostname": Piece(self.space.constant(hostname), fixed=True, text=hostname),
            "worker_id": Piece(self.space.constant(worker_id), fixed=True),
        }
        if language == "python":
            self.variables |= {"time": Piece("(time / 1e9)"), "time_ns": Piece("time")}
        else:
            self.variables["time"] = Piece("moment")
        self._emitter = Emitter(self.space, self.variables, Static(hostname, now))
        self._converter = Converter(self.space, self.variables)

    def ruby(self, text: str) -> Piece:
        """A Ruby expression. Raises Refused."""
        emitter = self._emitter
        emitter.odd = False
        piece = emitter.emit(Parser(text).whole())
        if not emitter.odd or piece.boolean or piece.is_text or piece.text is not None:
            return piece
        return Piece(f"{self.space.function(held)}({piece.code})", fixed=piece.fixed)

    def ruby_text(self, text: str) -> Piece:
        """A text with #{} in it. Raises Refused."""
        return self._emitter.emit(Parser(text).interpolated(""))

    def python(self, text: str) -> Piece:
        """A Python expression. Raises Refused."""
        return self._converter.piece(text)

    def constant(self, value: object) -> Piece:
        """A value as it is."""
        return Piece(self.space.constant(value), fixed=True, text=value if isinstance(value, str) else None)

    def joined(self, pieces: Sequence[Piece]) -> Piece:
        """A text of several."""
        return self._emitter.concatenated(pieces)

    def text(self, piece: Piece) -> Piece:
        """The piece as a text."""
        return piece if piece.text is not None else Piece(self._emitter.as_text(piece), fixed=piece.fixed, is_text=True)

    def moment_text(self) -> Piece:
        """The time as Ruby prints it."""
        return Piece(f"{self.space.function(interpolated)}(moment)")

    def use(self, piece: Piece) -> str:
        """The code of a piece; what is the same for a whole batch is worked out before its events."""
        if not piece.fixed or piece.text is not None or piece.code == "None":
            return piece.code
        name = f"b{len(self._hoisted)}"
        self._hoisted.append(f"{name} = {piece.code}")
        return name

    def function(self, body: Sequence[str], *, result: str = "new", prologue: Sequence[str] = ()) -> Run:
        """Make the function; body: the lines for one event, which set `new`."""
        whole = "\n".join([*body, *self._hoisted])
        tags = [line for name, line in _TAGS.items() if name in whole]
        per_event = ["moment = Moment(time)"] if "moment" in whole else []
        values = self.space.values
        values.update(Moment=Moment, parts_of=parts_of, prefixes=prefixes, suffixes=suffixes)
        first = _function("run", [*tags, *prologue], self._hoisted, [*per_event, *body], result)
        again = _function("plain", [*tags, *prologue], [], [*per_event, *self._hoisted, *body], result)
        code = compile(f"{again}\n{first}", "<expressions>", "exec", dont_inherit=True)
        exec(code, values)  # noqa: S102 - text of our own making: see the package's docstring
        found: Run = values["run"]
        return found


def _function(name: str, prologue: Sequence[str], hoisted: Sequence[str], body: Sequence[str], result: str) -> str:
    lines = [f"def {name}(tag, events, failed):"]
    lines += [f"    {line}" for line in prologue]
    if hoisted:
        # What fails before the events belongs to each of them.
        lines += [
            "    try:",
            *[f"        {line}" for line in hoisted],
            "    except Exception:",
            "        return plain(tag, events, failed)",
        ]
    lines += ["    out = []", "    add = out.append", "    for time, record in events:", "        try:"]
    lines += [f"            {line}" for line in body]
    lines += [
        f"            add((time, {result}))",
        "        except Exception as error:",
        "            failed(tag, time, record, error)",
        "    return out",
    ]
    return "\n".join(lines)


__all__ = ["Program", "Refused", "parts_of"]
