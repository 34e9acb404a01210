"""<labels>: names and values, compiled once into a function of a tag and a record.

A value is a record accessor (`$.a.b`, `$['a']`), or a text with placeholders: `${hostname}`, `${worker_id}`,
`${tag}`, `${tag_parts[N]}`, `${tag_prefix[N]}`, `${tag_suffix[N]}`, and `${field}`, `${list[0]}`, `${map["key"]}`
of the record. What begins with `tag` comes from the tag alone, whatever a record holds.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import literal_of
from headrace.errors import ConfError
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.placeholders import as_text
from headrace.plugins.prometheus.registry import LABEL, Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.throttle import Throttle

    Value = Callable[[list[str], Record], str]
    """(parts of the tag, record) -> text."""

KEPT: Final = 1024
"""Tags whose labels are remembered, where nothing else decides them."""

_PLACEHOLDER: Final = re.compile(r"\$\{([^}\[]+)(?:\[([^\]]*)\])?\}")
_OF_TAG: Final = {"tag", "tag_parts", "tag_prefix", "tag_suffix"}


def read_section(directive: Directive | None) -> dict[str, str]:
    """The names and texts of a <labels> or <initlabels> section. Raises ConfError for a name that cannot be one."""
    found: dict[str, str] = {}
    for child in (directive.block or ()) if directive is not None else ():
        if child.block is not None:
            raise ConfError(f"<labels> cannot have <{child.name}>", child.place)
        if not LABEL.fullmatch(child.name):
            raise ConfError(f'"{child.name}" is no name of a label', child.place, hint="letters, digits and _")
        found[child.name] = str(literal_of(child))
    return found


def is_accessor(text: str) -> bool:
    """Whether a value is a record accessor."""
    return text.startswith(("$.", "$["))


def constants(context: Context) -> dict[str, str]:
    """What is known before any event."""
    return {"hostname": context.hostname, "worker_id": str(context.worker_id)}


def expand_constants(text: str, known: Mapping[str, str]) -> str:
    """A text with `${hostname}` and `${worker_id}` filled in; other placeholders stay."""
    return _PLACEHOLDER.sub(lambda match: match.group() if match[2] else known.get(match[1], match.group()), text)


class LabelSet:
    """The labels of one metric. Raises ConfError for an accessor that cannot be read.

    by_tag: nothing of the record counts, so that a batch has one set of labels.
    """

    def __init__(self, texts: Mapping[str, str], context: Context, log: logging.Logger, unknown: Throttle) -> None:
        self.texts = dict(texts)
        self.names = tuple(self.texts)
        self._log = log
        self._unknown = unknown
        known = constants(context)
        self._values: list[Value] = []
        self.by_tag = True
        for text in self.texts.values():
            self._values.append(self._accessor(text) if is_accessor(text) else self._template(text, known))
        self._kept: dict[str, Labels] = {}

    def _accessor(self, text: str) -> Value:
        self.by_tag = False
        try:
            get = Accessor(text).get
        except ValueError as error:
            raise ConfError(str(error)) from error
        return lambda _parts, record: as_text(get(record))

    def _template(self, text: str, known: Mapping[str, str]) -> Value:
        text = expand_constants(text, known)
        pieces: list[str | Value] = []
        at = 0
        for match in _PLACEHOLDER.finditer(text):
            pieces += [text[at : match.start()], self._placeholder(match)]
            at = match.end()
        pieces.append(text[at:])
        if len(pieces) == 1:
            return lambda _parts, _record: text
        return lambda parts, record: "".join(
            [piece if isinstance(piece, str) else piece(parts, record) for piece in pieces]
        )

    def _placeholder(self, match: re.Match[str]) -> Value:
        whole, name, index = match.group(), match[1], match[2]
        if name in _OF_TAG:
            return self._of_tag(whole, name, index)
        self.by_tag = False
        key: str | int | None = index
        if index is not None:
            quoted = len(index) > 1 and index[0] == index[-1] and index[0] in "\"'"
            key = index[1:-1] if quoted else _integer(index)

        def of_record(_parts: list[str], record: Record) -> str:
            value: Any = record.get(name)
            if index is None:
                if name in record and not isinstance(value, (dict, list)):
                    return as_text(value)
            elif _has(value, key):
                return as_text(value[key])
            return self._not_known(whole)

        return of_record

    def _of_tag(self, whole: str, name: str, index: str | None) -> Value:
        if name == "tag" and index is None:
            return lambda parts, _record: ".".join(parts)
        at = None if index is None else _integer(index)
        if at is None or (at < 0 and name != "tag_parts") or name == "tag":
            return lambda _parts, _record: self._not_known(whole)

        def of_parts(parts: list[str], _record: Record) -> str:
            size = len(parts)
            if not -size <= at < size:
                return self._not_known(whole)
            if name == "tag_parts":
                return parts[at]
            return ".".join(parts[: at + 1] if name == "tag_prefix" else parts[size - 1 - at :])

        return of_parts

    def _not_known(self, whole: str) -> str:
        self._unknown.log(self._log, logging.WARNING, "unknown placeholder `%s` found", whole)
        return whole

    def of_tag(self, tag: str) -> Labels:
        """The labels of a tag; only where `by_tag`."""
        found = self._kept.get(tag)
        if found is None:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            found = self._kept[tag] = self.of(tag, {})
        return found

    def of(self, tag: str, record: Record) -> Labels:
        """The labels of an event."""
        parts = tag.split(".")
        return tuple([value(parts, record) for value in self._values])


def _has(value: Any, key: str | int | None) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
