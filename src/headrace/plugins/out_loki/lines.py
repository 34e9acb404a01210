"""A record -> the labels of its stream, and its line.

Labels are texts only, as in the original: a field of another type makes none. What became a label leaves the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.jsoncodec import encode
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.pipeline.accessor import Accessor
    from headrace.pipeline.event import Record

    Labels = tuple[tuple[str, str], ...]

_UNFIT: Final = re.compile(r"[.\-/]")
_SPECIAL: Final = re.compile(r'(["\\])')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def label_name(name: str) -> str:
    """A name with what Loki does not take in one replaced."""
    return _UNFIT.sub("_", name)


@dataclass(frozen=True)
class Shape:
    """What is made of records. labels: (name, field). fixed: labels of every stream, which go before others."""

    labels: Sequence[tuple[str, Accessor]]
    fixed: Mapping[str, str]
    kubernetes: bool
    removed: Sequence[Accessor]
    json: bool
    drop_single_key: bool

    def split(self, record: Record) -> tuple[Labels, str]:
        """The labels and the line; the record is taken apart. Raises ValueError when it cannot be a line."""
        found: dict[str, Any] = {name: field.delete(record) for name, field in self.labels}
        if self.kubernetes:
            kubernetes = record.get("kubernetes")
            labels = kubernetes.get("labels") if isinstance(kubernetes, dict) else None
            if isinstance(labels, dict):
                found.update({label_name(str(name)): value for name, value in labels.items()})
        for field in self.removed:
            field.delete(record)
        found.update(self.fixed)
        texts = {name: value.replace('"', '\\"') for name, value in found.items() if isinstance(value, str)}
        return tuple(texts.items()), self._line(record)

    def _line(self, record: Record) -> str:
        if self.drop_single_key and len(record) == 1:
            (value,) = record.values()
            return encode(value).decode() if isinstance(value, (dict, list)) else _clean(to_s(value))
        if self.json:
            return encode(record).decode()
        return " ".join([f"{_clean(to_s(key))}={_value(value)}" for key, value in record.items()])


def _value(value: Any) -> str:
    text = _SPECIAL.sub(r"\\\1", _clean(to_s(value)))
    return f'"{text}"' if " " in text or "=" in text else text


def _clean(text: str) -> str:
    """A text without what is not UTF-8."""
    return _SURROGATE.sub("?", text) if not text.isascii() else text
