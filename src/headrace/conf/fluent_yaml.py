"""A configuration in YAML -> the same tree as fluent.conf (docs.fluentd.org, Config: Config File Syntax, YAML).

    text --yaml.compose--> nodes, which know file and line --> tree.Directive

Nothing of YAML's own types is used: a scalar stands for its text, as in fluent.conf (`0644` stays `0644`), but for
true, false and null. `$type`, `$id`, `$label`, `$log_level` are the parameters with an @; `$tag`, `$name` and `$arg`
the argument of a section. `!fluent/s` is a text with "#{...}", `!fluent/json` a value as JSON, `!include` another file.

Bounded: depth, and how many nodes aliases may grow to. A file that includes itself is an error.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from headrace.conf.files import Lines
from headrace.conf.fluent_include import included_paths
from headrace.conf.fluent_literal import Literals
from headrace.conf.tree import Directive
from headrace.conf.values import USE_DEFAULT, to_json
from headrace.errors import ConfError, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.conf.files import Files
    from headrace.conf.fluent_ruby import Surroundings
    from headrace.conf.problems import Problems

    Pair = tuple[yaml.Node, yaml.Node]

SUFFIXES: Final = (".yaml", ".yml")
_DEPTH_MAX: Final = 64
_NODES_MAX: Final = 100_000
_INCLUDE_DEPTH_MAX: Final = 16
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_RESERVED: Final = {"$type": "@type", "$id": "@id", "$label": "@label", "$log_level": "@log_level"}
_SECTIONS: Final = ("label", "source", "filter", "match", "worker")
"""What may stand in a `config`, in the order in which those of one item count."""
_ARGUMENT: Final = {"label": "$name", "filter": "$tag", "match": "$tag"}
_SHORT: Final = re.compile(r"!(?:fluent/s|fluent/json|include)")


def parse(text: str, file: str, around: Surroundings, files: Files, problems: Problems) -> tuple[Directive, ...]:
    """Parse the text of a file and what it includes. Raises ConfError with file and line."""
    return _Reader(around, files, problems).root(text, file)


class _Reader:
    """One configuration."""

    def __init__(self, around: Surroundings, files: Files, problems: Problems) -> None:
        self._around = around
        self._files = files
        self._problems = problems
        self._nodes = 0
        self._chain: list[str] = []

    def root(self, text: str, file: str) -> tuple[Directive, ...]:
        """Read a whole file."""
        self._chain = [file]
        top = _compose(text, file)
        if top is None:
            return ()
        found: list[Directive] = []
        pairs = {_text(key): (key, value) for key, value in self._pairs(top, "the file", 0)}
        for name, (key, value) in pairs.items():
            if name == "system" and not _is_null(value):
                found.append(self._section("system", key, value, 0))
            elif name not in {"system", "config"}:
                place = _place(key)
                self._problems.unknown(f'unknown key "{name}" at the top', place, hint="there are system and config")
        if "config" in pairs and not _is_null(pairs["config"][1]):
            found += self._config(pairs["config"][1], 0)
        return tuple(found)

    def _config(self, node: yaml.Node, depth: int) -> Iterator[Directive]:
        """The sections of a `config`: a list of mappings."""
        for item in self._items(node, depth):
            pairs = {_text(key): (key, value) for key, value in self._pairs(item, "an item of config", depth)}
            for name in _SECTIONS:
                if name in pairs:
                    key, value = pairs.pop(name)
                    yield self._group(name, key, value, depth + 1)
            for name, (key, _value) in pairs.items():
                raise ConfError(f'"{name}" is no section', _place(key), hint=", ".join(_SECTIONS))

    def _group(self, name: str, key: yaml.Node, node: yaml.Node, depth: int) -> Directive:
        if name not in {"label", "worker"}:
            return self._section(name, key, node, depth)
        argument = ""
        block: tuple[Directive, ...] = ()
        for inner, value in self._pairs(node, f"<{name}>", depth):
            word = _text(inner)
            if word == ("$name" if name == "label" else "$arg"):
                argument = self._argument(value)
            elif word == "config":
                block = tuple(self._config(value, depth + 1))
            else:
                raise ConfError(f'<{name}> cannot have "{word}"', _place(inner), hint="its sections stand in config")
        return _directive(name, _place(key), argument, block)

    def _section(self, name: str, key: yaml.Node, node: yaml.Node, depth: int) -> Directive:
        """A section with parameters and sections."""
        argument = ""
        block: list[Directive] = []
        names = {_ARGUMENT.get(name, "$arg"), "$arg"}
        for inner, value in self._pairs(node, f"<{name}>", depth):
            word = _text(inner)
            if word in names:
                argument = self._argument(value)
            elif isinstance(value, yaml.MappingNode) and not _is_json(value):
                block.append(self._section(word, inner, value, depth + 1))
            elif isinstance(value, yaml.SequenceNode) and not _is_json(value) and _has_sections(value):
                block += [self._section(word, item, item, depth + 1) for item in self._items(value, depth)]
            else:
                block.append(self._parameter(_RESERVED.get(word, word), _place(inner), value, depth))
        return _directive(name, _place(key), argument, tuple(block))

    def _parameter(self, name: str, place: Place, node: yaml.Node, depth: int) -> Directive:
        value = self._value(node, depth)
        text = value if isinstance(value, str) else "" if value in (None, USE_DEFAULT) else to_json(value)
        return Directive(name, (text,), place.file, place.line, values=(value,))

    def _argument(self, node: yaml.Node) -> str:
        """The argument of a section; several are joined with commas."""
        value = self._value(node, 0)
        parts = value if isinstance(value, list) else [value]
        return ",".join("" if part is None or part is USE_DEFAULT else str(part) for part in parts)

    def _value(self, node: yaml.Node, depth: int) -> Any:
        if _is_json(node):
            return self._json(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, depth + 1) for item in self._items(node, depth)]
        if isinstance(node, yaml.MappingNode):
            return {_text(key): self._value(value, depth + 1) for key, value in self._pairs(node, "a value", depth)}
        assert isinstance(node, yaml.ScalarNode)
        if node.tag == "!fluent/s":
            return self._ruby(node)
        if node.tag == "!include":
            raise ConfError("!include cannot be a value", _place(node), hint="write <<: !include FILE")
        _check_tag(node)
        if node.tag == f"{_TAG}null":
            return None
        if node.tag == f"{_TAG}bool":
            return "true" if node.value.lower() in {"true", "yes", "on", "y"} else "false"
        return str(node.value)

    def _json(self, node: yaml.Node, depth: int) -> Any:
        """A value as JSON: with YAML's types."""
        self._count(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._json(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {_text(key): self._json(value, depth + 1) for key, value in node.value}
        if node.tag == "!fluent/s":
            return self._ruby(node)
        tag = _untagged(node)
        try:
            if tag == f"{_TAG}int":
                return yaml.SafeLoader("").construct_yaml_int(yaml.ScalarNode(tag, node.value))
            if tag == f"{_TAG}float":
                return float(node.value.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return str(node.value)
        if tag == f"{_TAG}null":
            return None
        return node.value.lower() in {"true", "yes", "on"} if tag == f"{_TAG}bool" else str(node.value)

    def _ruby(self, node: yaml.Node) -> Any:
        """A text in which "#{...}" is evaluated, as between double quotes in fluent.conf."""
        text = f'"{node.value}"'
        place = _place(node)
        literals = Literals(text, Lines(text, place.file), self._around)
        try:
            value, end = literals.string(0)
        except ConfError as error:
            raise ConfError(error.message, place, hint=error.hint) from error
        if end != len(text):
            raise ConfError("a double quote within !fluent/s", place, hint='write \\\\" or single quotes')
        return value

    def _items(self, node: yaml.Node, depth: int) -> Iterator[yaml.Node]:
        """The elements of a list, those of included files in their place."""
        self._count(node, depth)
        if not isinstance(node, yaml.SequenceNode):
            raise ConfError("a list is needed here", _place(node), hint="- item")
        _check_tag(node)
        for item in node.value:
            if item.tag != "!include":
                yield item
                continue
            for found, path in self._included(item):
                if isinstance(found, yaml.SequenceNode):
                    yield from self._items(found, depth + 1)
                else:
                    yield found
                self._chain.remove(path)

    def _pairs(self, node: yaml.Node, what: str, depth: int) -> Iterator[Pair]:
        """The keys and values of a mapping; what `<<` brings comes where it stands, and later keys win, as in Ruby."""
        self._count(node, depth)
        if not isinstance(node, yaml.MappingNode):
            raise ConfError(f"{what} must be a mapping", _place(node), hint="key: value")
        _check_tag(node)
        merged: dict[str, Pair] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfError("a key must be a text", _place(key))
            if key.value != _MERGE:
                merged[key.value] = (key, value)
            elif value.tag == "!include":
                for found, path in self._included(value):
                    merged.update({_text(inner): (inner, one) for inner, one in self._pairs(found, path, depth + 1)})
                    self._chain.remove(path)
            else:
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    merged.update({_text(inner): (inner, one) for inner, one in self._pairs(source, "<<", depth + 1)})
        yield from merged.values()

    def _included(self, node: yaml.Node) -> Iterator[tuple[yaml.Node, str]]:
        place = _place(node)
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            raise ConfError("!include needs a path", place)
        paths = included_paths(node.value, os.path.dirname(place.file), place)
        if not paths:
            report = self._problems.warn if set(node.value) & set("*?[{") else self._problems.unknown
            report(f"!include {node.value}: no such file", place, hint=f"relative to {os.path.dirname(place.file)}")
        for path in paths:
            if path in self._chain or len(self._chain) > _INCLUDE_DEPTH_MAX:
                raise ConfError(f"!include goes round in a circle or too deep: {path}", place)
            self._chain.append(path)
            found = _compose(self._files.load(path, place), path)
            if found is None:
                self._chain.remove(path)
            else:
                yield found, path

    def _count(self, node: yaml.Node, depth: int) -> None:
        self._nodes += 1
        if depth > _DEPTH_MAX:
            raise ConfError(f"nested deeper than {_DEPTH_MAX}", _place(node))
        if self._nodes > _NODES_MAX:
            raise ConfError(f"more than {_NODES_MAX} lists and mappings, aliases included", _place(node))


def _compose(text: str, file: str) -> yaml.Node | None:
    """The node of a text's one document; None when it is empty. Raises ConfError."""
    try:
        loader = yaml.SafeLoader(text)
        loader.name = file
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1 if mark is not None else 1)
        raise ConfError(f"YAML: {error.problem or error.context}", place) from error
    except yaml.YAMLError as error:
        raise ConfError(f"YAML: {str(error).splitlines()[0]}", Place(file, 1)) from error
    except RecursionError as error:
        raise ConfError("YAML: nested too deeply", Place(file, 1)) from error
    return None if node is None or _is_null(node) else node


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.name, node.start_mark.line + 1)


def _directive(name: str, place: Place, argument: str, block: tuple[Directive, ...]) -> Directive:
    args = (argument,) if argument else ()
    return Directive(name, args, place.file, place.line, block=block, values=args)


def _text(key: yaml.Node) -> str:
    return str(key.value)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _is_json(node: yaml.Node) -> bool:
    return bool(node.tag == "!fluent/json")


def _has_sections(node: yaml.SequenceNode) -> bool:
    """Whether a list is of sections, as its first element tells."""
    first = node.value[0] if node.value else None
    if first is None or _is_json(first):
        return False
    return isinstance(first, yaml.CollectionNode) or first.tag == "!include"


def _untagged(node: yaml.Node) -> str:
    """The tag a scalar would have without !fluent/json."""
    if node.tag != "!fluent/json":
        return str(node.tag)
    if node.style is not None:
        return f"{_TAG}str"
    return str(yaml.resolver.Resolver().resolve(yaml.ScalarNode, node.value, (True, False)))


def _check_tag(node: yaml.Node) -> None:
    if not node.tag.startswith(_TAG):
        hint = "did you mean !include, !fluent/s or !fluent/json?" if not _SHORT.fullmatch(node.tag) else ""
        raise ConfError(f"the tag {node.tag} is not possible here", _place(node), hint=hint)
