"""The text formats: 0.0.4 and OpenMetrics 1.0, and several texts of 0.0.4 made one.

https://prometheus.io/docs/instrumenting/exposition_formats/
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from headrace.plugins.prometheus.registry import COUNTER, GAUGE, HISTOGRAM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.plugins.prometheus.registry import Family, Labels

PLAIN: Final = b"text/plain; version=0.0.4"
OPEN: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

_TOTAL: Final = "_total"
_VALUE_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def wants_open(accept: bytes | None) -> bool:
    """Whether an Accept field names OpenMetrics."""
    return accept is not None and b"application/openmetrics-text" in accept.lower()


def render(families: Iterable[Family]) -> bytes:
    """Text format 0.0.4."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.append(f"# HELP {family.name} {family.doc.translate(_HELP_ESCAPES)}")
        lines += _samples(family, family.name, exact=False)
    return _encoded(lines)


def render_open(families: Iterable[Family]) -> bytes:
    """OpenMetrics 1.0.

    A counter whose name does not end in _total is of type unknown here: OpenMetrics would have its samples called
    NAME_total, and a figure must not change its name with what the scraper asks for.
    """
    lines: list[str] = []
    for family in families:
        name, kind = family.name, family.kind
        if kind == COUNTER:
            if name.endswith(_TOTAL):
                name = name.removesuffix(_TOTAL)
            else:
                kind = "unknown"
        lines.append(f"# TYPE {name} {kind}")
        lines.append(f"# HELP {name} {family.doc.translate(_VALUE_ESCAPES)}")
        lines += _samples(family, family.name, exact=True)
    return _encoded([*lines, "# EOF"])


def _encoded(lines: list[str]) -> bytes:
    # Labels come from records, which may hold bytes that are not UTF-8; the formats are UTF-8 only.
    text = "\n".join(lines) + "\n" if lines else ""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8", "replace")


def _samples(family: Family, name: str, *, exact: bool) -> Iterator[str]:
    if family.kind in {COUNTER, GAUGE}:
        for labels, value in family.values.items():
            yield f"{name}{_labels(family, labels)} {number(value)}"
        return
    for labels, found in family.distributions.items():
        if family.kind == HISTOGRAM:
            below = 0
            for bound, count in zip(found.bounds, found.buckets, strict=True):
                below += count
                shown = number(float(bound)) if exact else str(bound)
                yield f"{name}_bucket{_labels(family, labels, shown)} {number(below)}"
            yield f"{name}_bucket{_labels(family, labels, '+Inf')} {number(found.count)}"
        yield f"{name}_sum{_labels(family, labels)} {number(found.sum)}"
        yield f"{name}_count{_labels(family, labels)} {number(found.count)}"


def _labels(family: Family, values: Labels, bound: str | None = None) -> str:
    pairs = [f'{name}="{value.translate(_VALUE_ESCAPES)}"' for name, value in zip(family.labels, values, strict=True)]
    if bound is not None:
        pairs.append(f'le="{bound}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


def number(value: float) -> str:
    """A value: always with a fraction, as the original prints it."""
    value = float(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


class Aggregate:
    """Several texts of 0.0.4 as one: each family once, with the samples of all."""

    def __init__(self) -> None:
        self._comments: dict[str, list[str]] = {}
        self._samples: dict[str, list[str]] = {}

    def add(self, text: bytes) -> None:
        """Add one text."""
        current = ""
        known = False
        for line in text.decode("utf-8", "replace").split("\n"):
            if line.startswith("# "):
                parts = line.split(" ", 3)
                if len(parts) < 3 or parts[1] not in {"TYPE", "HELP"}:
                    continue
                if parts[2] != current:
                    current = parts[2]
                    known = current in self._comments
                    self._comments.setdefault(current, [])
                if not known:
                    self._comments[current].append(line)
            elif line:
                self._samples.setdefault(current, []).append(line)

    def render(self) -> bytes:
        """The text of all."""
        lines: list[str] = []
        for name, comments in self._comments.items():
            lines += comments
            lines += self._samples.get(name, [])
        return _encoded(lines)
