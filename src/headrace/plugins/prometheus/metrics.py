"""<metric>: what the filter and the output count of each record.

Each section becomes a function of a tag and its events. Where neither a field nor a label comes from the record, a
batch is counted by its number of events, without being decoded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.conf.params import Configurable, boolean, enum, raw_section, section, string
from headrace.errors import ConfError
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.throttle import Throttle
from headrace.plugins.prometheus.labels import LabelSet, constants, expand_constants, is_accessor, read_section
from headrace.plugins.prometheus.registry import (
    COUNTER,
    DEFAULT_BUCKETS,
    GAUGE,
    HISTOGRAM,
    KINDS,
    Labels,
    registry_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch, Record
    from headrace.pipeline.plugin import Plugin

    Count = Callable[[str, Batch], None]


class Metric(Configurable):
    """One metric."""

    metric_name = string(key="name", doc="Name of the metric")
    type_ = enum(KINDS, key="type", doc="Its type")
    desc = string(doc="What it tells, for people")
    key = string(default=None, doc="The field whose value counts; $.a.b for a nested one; a counter does without")
    buckets = string(default=None, doc="Upper bounds of a histogram's buckets, ascending, with commas between")
    initialized = boolean(default=False, doc="Have the value zero before the first event")
    labels_section = raw_section(name="labels", doc="Labels of this metric, beside those of the plugin")
    initlabels_sections = raw_section(
        name="initlabels", multi=True, doc="With initialized: values of the labels that come from records"
    )

    bounds: tuple[float, ...] = ()

    def validate(self, problems: Problems) -> None:
        """Check what belongs to the type."""
        if self.type_ != COUNTER and self.key is None:
            problems.error(f"{self.type_} metric requires 'key' option", self.place)
        if self.type_ == HISTOGRAM:
            self._read_buckets(problems)
        elif self.buckets is not None:
            problems.error(f"a {self.type_} has no buckets", self.place_of("buckets"), hint="type histogram has")
        if self.initlabels_sections and not self.initialized:
            problems.error("<initlabels> needs initialized true", self.initlabels_sections[0].place)

    def _read_buckets(self, problems: Problems) -> None:
        self.bounds = DEFAULT_BUCKETS
        if self.buckets is None:
            return
        try:
            bounds = [_bound(text.strip()) for text in self.buckets.split(",")]
        except ValueError as error:
            problems.error(f'parameter "buckets": {error}', self.place_of("buckets"))
            return
        if bounds != sorted(set(bounds)):
            problems.error('parameter "buckets" must be in ascending order', self.place_of("buckets"))
        self.bounds = tuple(bounds)

    def counter(self, owner: Plugin, context: Context, common: Mapping[str, str], unknown: Throttle) -> Count:
        """Register the metric and return what counts a batch. Raises ConfError."""
        texts = {**common, **read_section(self.labels_section)}
        if self.type_ == HISTOGRAM and "le" in texts:
            raise ConfError('"le" is the label of buckets, a histogram cannot have another', self.place)
        registry = registry_of(context)
        family = registry.family(self.metric_name, self.type_, self.desc, tuple(texts), self.bounds)
        labels = LabelSet({name: texts[name] for name in family.labels}, context, owner.log, unknown)
        if self.initialized:
            for values in self._initial(texts, context):
                family.init(tuple(values[name] for name in family.labels))
        changes = {COUNTER: family.add, GAUGE: family.set}
        record_change: Callable[[Labels, Any], None] = changes.get(self.type_, family.observe)
        if self.key is None:
            return self._by_number(owner, labels, family.add)
        try:
            get = Accessor(self.key).get
        except ValueError as error:
            raise ConfError(str(error), self.place_of("key")) from error
        return self._by_value(owner, labels, get, record_change)

    def _by_number(self, owner: Plugin, labels: LabelSet, add: Callable[[Labels, float], None]) -> Count:
        if labels.by_tag:
            return lambda tag, batch: add(labels.of_tag(tag), batch.count)

        def one(tag: str, record: Record) -> None:
            add(labels.of(tag, record), 1)

        return self._each(owner, one)

    def _by_value(
        self, owner: Plugin, labels: LabelSet, get: Callable[[Record], Any], change: Callable[[Labels, Any], None]
    ) -> Count:
        name = self.metric_name

        def one(tag: str, record: Record) -> None:
            value = get(record)
            if value is None:
                return
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name}: value must be a number, not {value!r:.100}")
            change(labels.of_tag(tag) if labels.by_tag else labels.of(tag, record), value)

        return self._each(owner, one)

    def _each(self, owner: Plugin, one: Callable[[str, Record], None]) -> Count:
        """What counts event by event; an event that cannot be counted is an error event, and goes on all the same."""
        failures = Throttle()
        name = self.metric_name

        def count(tag: str, batch: Batch) -> None:
            for time, record in batch.events():
                try:
                    one(tag, record)
                except Exception as error:  # noqa: BLE001 - whatever a record provokes is that record's matter
                    message = "failed to instrument a metric: %s, tag=%r: %r"
                    failures.log(owner.log, logging.WARNING, message, name, tag, error)
                    owner.router.emit_error_event(tag, time, record, error)

        return count

    def _initial(self, texts: Mapping[str, str], context: Context) -> list[dict[str, str]]:
        """The sets of labels that have a value from the beginning. Raises ConfError."""
        known = constants(context)
        fixed = {name: expand_constants(text, known) for name, text in texts.items() if not _varies(text)}
        open_names = [name for name in texts if name not in fixed]
        found: list[dict[str, str]] = []
        for directive in self.initlabels_sections:
            given = read_section(directive)
            for name, text in given.items():
                if name not in texts:
                    raise ConfError(f'"{name}" of <initlabels> is no label of {self.metric_name}', directive.place)
                if name in fixed:
                    raise ConfError(f'"{name}" does not vary: leave it out of <initlabels>', directive.place)
                if _varies(text):
                    raise ConfError(f'"{name}" of <initlabels> must be a plain value', directive.place)
            found.append({**fixed, **given})
        missing = [name for name in open_names if not found or any(name not in values for values in found)]
        if missing:
            raise ConfError(
                f"{self.metric_name} is initialized, but its label {missing[0]} has no value yet",
                self.place,
                hint="give it one in <initlabels>",
            )
        return found or [fixed]


def _varies(text: str) -> bool:
    """Whether a label's value comes from events."""
    plain = text.replace("${hostname}", "").replace("${worker_id}", "")
    return is_accessor(text) or "${" in plain


def _bound(text: str) -> float:
    """A bucket's bound: an integer stays one, as it is printed."""
    try:
        return int(text)
    except ValueError:
        return float(text)


class Metrics(Configurable):
    """The sections of the filter and the output."""

    metrics = section(Metric, name="metric", multi=True, doc="What is counted")
    labels_section = raw_section(name="labels", doc="Labels of all metrics; those of a metric go before them")

    def counters(self, owner: Plugin, context: Context) -> list[Count]:
        """What counts a batch, for each metric. Raises ConfError; reports what a metric's own section has wrong."""
        common = common_labels(self.labels_section, context)
        unknown = Throttle()
        made: list[Count] = []
        for metric in self.metrics:
            try:
                made.append(metric.counter(owner, context, common, unknown))
            except ConfError as error:
                context.problems.error(error.message, error.place or metric.place, hint=error.hint)
        return made


def common_labels(directive: Any, context: Context) -> dict[str, str]:
    """The labels of a plugin; with several workers, the worker's number is one of them."""
    labels = read_section(directive)
    if context.settings.workers > 1:
        labels["worker_id"] = str(context.worker_id)
    return labels
