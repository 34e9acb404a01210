"""The format of test files: YAML -> cases, each part with its file and line.

Of YAML's types only null, true, false, numbers, texts, lists and maps are used: a time is a text, and so is `yes`.
`!any` stands for any value (also: any value at all of a field), `!re TEXT` for a text in which TEXT is found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import yaml

from headrace.conf.params import near_miss
from headrace.conf.values import as_time
from headrace.errors import ConfError, Place
from headrace.pipeline.event import NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START: Final = 1_767_225_600 * NS
"""When a test begins unless it says so: 2026-01-01T00:00:00Z."""
_BOOL: Final = "tag:yaml.org,2002:bool"
_TIME: Final = "tag:yaml.org,2002:timestamp"


class Whatever:
    """Equal to everything."""

    def __repr__(self) -> str:
        return "!any"


@dataclass(frozen=True)
class Found:
    """Equal to texts in which a regular expression is found."""

    pattern: re.Pattern[str]

    def __repr__(self) -> str:
        return f"!re {self.pattern.pattern}"


@dataclass
class Input:
    """Events that come, or time that passes. to: a label, or "" for the top level; source: the id of a source."""

    place: Place
    to: str = ""
    source: str | None = None
    tag: str = ""
    events: list[tuple[int | None, dict[Any, Any]]] = field(default_factory=list)
    wait: float = 0.0


@dataclass
class Expected:
    """One assertion. kind: output, label, filter, errors or unmatched; name: which of them.

    events: (tag or None, time in ns or None, record) each, with its place; None: they do not matter. partial: fields
    that are not named do not matter. count: how many; dropped: by a filter.
    """

    place: Place
    kind: str
    name: str = ""
    events: list[tuple[Place, Any, int | None, Any]] | None = None
    errors: list[tuple[Place, dict[str, Any]]] | None = None
    count: int | None = None
    dropped: int | None = None
    partial: bool = False
    ordered: bool = True


@dataclass
class Case:
    """One test."""

    name: str
    place: Place
    at: int = START
    inputs: list[Input] = field(default_factory=list)
    expect: list[Expected] = field(default_factory=list)


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # the library has no types
    """Plain values and our two tags."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in {_BOOL, _TIME}]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"true|false"), list("tf"))
_Loader.add_constructor("!any", lambda _loader, _node: Whatever())
_Loader.add_constructor("!re", lambda _loader, node: Found(re.compile(node.value)))


def read(path: str) -> list[Case]:
    """The cases of a file. Raises ConfError with file and line, OSError."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    return parse(text, path)


def parse(text: str, path: str) -> list[Case]:
    """The cases of a text. Raises ConfError with file and line."""
    loader = _Loader(text)
    reader = _Reader(loader, path)
    try:
        top = loader.get_single_node()
        return reader.cases(top)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(path, mark.line + 1) if mark is not None else Place(path, 1)
        hint = "a blank is needed after !any" if "scanning a tag" in str(error.context) else ""
        raise ConfError(f"not valid YAML: {error.problem or error.context}", place, hint=hint) from error
    except yaml.YAMLError as error:
        raise ConfError(f"not valid YAML: {error}", Place(path, 1)) from error
    except re.error as error:
        raise ConfError(f"a regular expression is not valid: {error}", Place(path, 1)) from error
    finally:
        loader.dispose()


class _Reader:
    def __init__(self, loader: _Loader, path: str) -> None:
        self._loader = loader
        self._path = path

    def cases(self, top: yaml.Node | None) -> list[Case]:
        if top is None:
            raise ConfError("the file is empty", Place(self._path, 1), hint="it begins with tests:")
        parts = self._map(top, ("tests",), "the file")
        if "tests" not in parts:
            raise ConfError("there is no tests:", self._place(top))
        return [self._case(node) for node in self._list(parts["tests"], "tests")]

    def _case(self, node: yaml.Node) -> Case:
        parts = self._map(node, ("name", "at", "inputs", "expect"), "a test")
        for needed in ("name", "inputs", "expect"):
            if needed not in parts:
                raise ConfError(f"a test needs {needed}:", self._place(node))
        case = Case(str(self._value(parts["name"])), self._place(node))
        if "at" in parts:
            case.at = self._time(parts["at"])
        case.inputs = [self._input(one) for one in self._list(parts["inputs"], "inputs")]
        case.expect = [self._expected(one) for one in self._list(parts["expect"], "expect")]
        if not case.expect:
            raise ConfError("a test that expects nothing tests nothing", self._place(parts["expect"]))
        return case

    def _input(self, node: yaml.Node) -> Input:
        keys = ("to", "source", "tag", "time", "records", "events", "wait")
        parts = self._map(node, keys, "an input")
        made = Input(self._place(node))
        if "wait" in parts:
            if len(parts) > 1:
                raise ConfError("an input is events, or a wait", made.place)
            made.wait = self._seconds(parts["wait"])
            return made
        if "to" in parts and "source" in parts:
            raise ConfError("an input goes to a label, or the way of a source: not both", made.place)
        made.to = self._text(parts.get("to"), "")
        made.source = self._text(parts["source"], "") if "source" in parts else None
        if "tag" not in parts:
            raise ConfError("an input needs tag: (or wait:)", made.place)
        made.tag = self._text(parts["tag"], "")
        at = self._time(parts["time"]) if "time" in parts else None
        for one in self._list(parts["records"], "records") if "records" in parts else ():
            made.events.append((at, self._record(one)))
        for one in self._list(parts["events"], "events") if "events" in parts else ():
            event = self._map(one, ("time", "record"), "an event")
            if "record" not in event:
                raise ConfError("an event needs record:", self._place(one))
            when = self._time(event["time"]) if "time" in event else at
            made.events.append((when, self._record(event["record"])))
        if not made.events:
            raise ConfError("an input needs records: or events:", made.place)
        return made

    def _expected(self, node: yaml.Node) -> Expected:
        kinds = ("output", "label", "filter", "errors", "unmatched")
        keys = (*kinds, "records", "events", "count", "dropped", "partial", "unordered")
        parts = self._map(node, keys, "an expectation")
        place = self._place(node)
        chosen = [kind for kind in kinds if kind in parts]
        if len(chosen) != 1:
            raise ConfError(f"an expectation has one of {', '.join(kinds)}", place)
        kind = chosen[0]
        made = Expected(place, kind)
        made.partial = self._flag(parts.get("partial"))
        made.ordered = not self._flag(parts.get("unordered"))
        if kind == "unmatched":
            made.count = self._count(parts[kind])
        elif kind == "errors":
            self._errors(made, parts[kind])
        else:
            made.name = self._text(parts[kind], "")
            self._events(made, parts)
        told = {"output": "records, events or count", "label": "records, events or count", "filter": "dropped"}
        if kind in told and made.events is None and made.count is None and made.dropped is None:
            raise ConfError(f"what is expected of {kind} {made.name}? {told[kind]}", place)
        if kind == "filter" and made.dropped is None:
            raise ConfError("of a filter, dropped: can be expected", place)
        return made

    def _events(self, made: Expected, parts: Mapping[str, yaml.Node]) -> None:
        made.count = self._count(parts["count"]) if "count" in parts else None
        made.dropped = self._count(parts["dropped"]) if "dropped" in parts else None
        if made.dropped is not None and made.kind != "filter":
            raise ConfError("filters drop events: filter: with dropped:", made.place)
        if "records" in parts:
            rows = self._list(parts["records"], "records")
            made.events = [(self._place(one), None, None, self._value(one)) for one in rows]
        for one in self._list(parts["events"], "events") if "events" in parts else ():
            event = self._map(one, ("tag", "time", "record"), "an event")
            when = self._time(event["time"]) if "time" in event else None
            tag = self._value(event["tag"]) if "tag" in event else None
            record = self._value(event["record"]) if "record" in event else Whatever()
            made.events = [*(made.events or ()), (self._place(one), tag, when, record)]
        if "events" in parts and made.events is None:
            made.events = []

    def _errors(self, made: Expected, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            made.count = self._count(node)
            return
        made.errors = []
        for one in self._list(node, "errors"):
            parts = self._map(one, ("tag", "record", "error"), "an error event")
            made.errors.append((self._place(one), {key: self._value(value) for key, value in parts.items()}))

    # YAML

    def _place(self, node: yaml.Node) -> Place:
        return Place(self._path, node.start_mark.line + 1)

    def _map(self, node: yaml.Node, known: tuple[str, ...], what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise ConfError(f"{what} is a map: {', '.join(known)}", self._place(node))
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name not in known:
                raise ConfError(f'{what} has no "{name}"', self._place(key), hint=near_miss(name, known))
            if name in found:
                raise ConfError(f'"{name}" stands twice', self._place(key))
            found[name] = value
        return found

    def _list(self, node: yaml.Node, what: str) -> Iterator[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise ConfError(f"{what} is a list", self._place(node))
        yield from node.value

    def _value(self, node: yaml.Node) -> Any:
        return self._loader.construct_document(node)

    def _record(self, node: yaml.Node) -> dict[Any, Any]:
        value = self._value(node)
        if not isinstance(value, dict):
            raise ConfError("a record is a map", self._place(node))
        return value

    def _text(self, node: yaml.Node | None, default: str) -> str:
        return default if node is None else str(self._value(node))

    def _flag(self, node: yaml.Node | None) -> bool:
        value = False if node is None else self._value(node)
        if not isinstance(value, bool):
            raise ConfError("true or false is needed", self._place(node) if node is not None else None)
        return value

    def _count(self, node: yaml.Node) -> int:
        value = self._value(node)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfError("a number of events is needed", self._place(node))
        return value

    def _seconds(self, node: yaml.Node) -> float:
        try:
            seconds = as_time(str(self._value(node)))
        except ValueError as error:
            raise ConfError(f"no time span: {error}", self._place(node), hint="10, 0.5, 2m, 1h") from error
        return seconds

    def _time(self, node: yaml.Node) -> int:
        """Nanoseconds since the epoch: of seconds, or of an ISO 8601 text with up to nine decimals."""
        value = self._value(node)
        try:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return round(value * NS) if isinstance(value, float) else value * NS
            match = re.fullmatch(r"(.*?:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", str(value).strip())
            if match is None:
                raise ValueError(value)
            whole = datetime.fromisoformat(match[1] + (match[3] or "Z"))
            return int(whole.replace(tzinfo=whole.tzinfo or UTC).timestamp()) * NS + int(
                (match[2] or "0").ljust(9, "0")
            )
        except ValueError as error:
            raise ConfError(
                f'"{value}" is no time', self._place(node), hint="2026-01-02T03:04:05.678Z, or seconds"
            ) from error
