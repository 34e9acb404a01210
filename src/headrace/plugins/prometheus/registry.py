"""The metrics of one worker. Families are made while the configuration is read; values change while it runs."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.pipeline.context import Context

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
SUMMARY: Final = "summary"
HISTOGRAM: Final = "histogram"
KINDS: Final = (COUNTER, GAUGE, SUMMARY, HISTOGRAM)

DEFAULT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

_KEY: Final = "prometheus_registry"

Labels = tuple[str, ...]
"""Values of the labels, in the order of the family's label names."""


class Distribution:
    """A summary or histogram with one set of labels: sum, count, and how many fell into each bucket."""

    __slots__ = ("bounds", "buckets", "count", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * len(bounds)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        at = bisect_left(self.bounds, value)
        if at < len(self.buckets):
            self.buckets[at] += 1
        self.count += 1
        self.sum += value


class Family:
    """One metric: its name, and a value for each set of labels.

    values: of counters and gauges. distributions: of summaries and histograms. bounds: of buckets, ascending.
    """

    def __init__(self, name: str, kind: str, doc: str, labels: Labels, bounds: Sequence[float] = ()) -> None:
        self.name = name
        self.kind = kind
        self.doc = doc
        self.labels = labels
        self.bounds = bounds
        self.values: dict[Labels, float] = {}
        self.distributions: dict[Labels, Distribution] = {}
        if not labels:
            self.init(())

    def init(self, labels: Labels) -> None:
        """Have a value from the beginning: zero."""
        if self.kind in {COUNTER, GAUGE}:
            self.values.setdefault(labels, 0.0)
        else:
            self.distribution(labels)

    def add(self, labels: Labels, value: float) -> None:
        """Count up. Raises ValueError below zero: a counter never falls."""
        if value < 0:
            raise ValueError(f"counter {self.name} cannot be increased by {value}")
        values = self.values
        values[labels] = values.get(labels, 0.0) + value

    def set(self, labels: Labels, value: float) -> None:
        """Set a gauge."""
        self.values[labels] = float(value)

    def observe(self, labels: Labels, value: float) -> None:
        """Count one value of a summary or histogram."""
        (self.distributions.get(labels) or self.distribution(labels)).observe(value)

    def distribution(self, labels: Labels) -> Distribution:
        """The distribution of a set of labels, made at need."""
        found = self.distributions.get(labels)
        if found is None:
            found = self.distributions[labels] = Distribution(self.bounds)
        return found


class Registry:
    """All families of one worker, in the order of their making."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._collectors: list[Callable[[], None]] = []

    def family(self, name: str, kind: str, doc: str, labels: Labels, bounds: Sequence[float] = ()) -> Family:
        """The family of this name, made when there is none.

        Raises ConfError for a name that Prometheus does not take, and for a second family of the name that differs.
        """
        if not NAME.fullmatch(name):
            raise ConfError(f'"{name}" is no name of a metric', hint="letters, digits, _ and :, no digit first")
        found = self._families.get(name)
        if found is None:
            made = self._families[name] = Family(name, kind, doc, labels, bounds)
            return made
        if found.kind != kind:
            raise ConfError(f"{name} has already been registered as {found.kind} type")
        if found.doc != doc:
            raise ConfError(f"{name} has already been registered with different docstring")
        if sorted(found.labels) != sorted(labels):
            raise ConfError(f"{name} has already been registered with other labels: {', '.join(found.labels)}")
        if kind == HISTOGRAM and tuple(found.bounds) != tuple(bounds):
            raise ConfError(f"{name} has already been registered with other buckets")
        return found

    def collect_with(self, collector: Callable[[], None]) -> None:
        """Call a function before each answer; it brings its families up to date."""
        self._collectors.append(collector)

    def collect(self) -> list[Family]:
        """All families, up to date."""
        for collector in self._collectors:
            collector()
        return list(self._families.values())


def registry_of(context: Context) -> Registry:
    """The registry of a pipeline; all its plugins share it."""
    kept: dict[str, Any] = vars(context)
    registry = kept.setdefault(_KEY, None) or Registry()
    kept[_KEY] = registry
    assert isinstance(registry, Registry)
    return registry
