"""What the monitor sources share: labels, the interval, and figures of other plugins as gauges and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headrace.conf.params import raw_section, time
from headrace.errors import ConfError
from headrace.pipeline.plugin import Source
from headrace.plugins.prometheus.labels import constants, expand_constants, is_accessor
from headrace.plugins.prometheus.metrics import common_labels
from headrace.plugins.prometheus.registry import Family, registry_of

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.plugin import Plugin


class Monitor(Source):
    """A source without events: its figures are looked up when they are asked for, at most once in `interval`."""

    multi_workers_ready = True
    own_labels: ClassVar[tuple[str, ...]] = ()
    """The labels that tell the figures apart, after the configured ones."""

    interval = time(default=5.0, doc="Seconds for which figures are good; asked later, they are looked up anew")
    labels_section = raw_section(name="labels", doc="Labels of all figures")

    def provision(self, context: Context) -> None:
        """Register the figures."""
        labels = common_labels(self.labels_section, context)
        known = constants(context)
        for name, text in labels.items():
            if is_accessor(text):
                place = self.labels_section.place if self.labels_section else self.place
                raise ConfError(f'label "{name}": record accessor syntax is not available in {self.type_}', place)
            labels[name] = expand_constants(text, known)
        self._constant = labels
        self._updated: float | None = None
        self.register(context)
        registry_of(context).collect_with(self._collect)

    def register(self, context: Context) -> None:
        """Make the families."""
        raise NotImplementedError

    def update(self) -> None:
        """Bring the families up to date."""
        raise NotImplementedError

    def family(self, context: Context, kind: str, name: str, doc: str) -> Family:
        """A family with the configured labels and `own_labels`."""
        return registry_of(context).family(name, kind, doc, (*self._constant, *self.own_labels))

    def put(self, family: Family, value: Any, **own: str) -> None:
        """Set the value of a gauge, or of a counter that is counted elsewhere."""
        labels = {**self._constant, **own}
        family.set(tuple(labels[name] for name in family.labels), value)

    def _collect(self) -> None:
        now = self.context.clock.now()
        if self._updated is None or now - self._updated >= self.interval:
            self._updated = now
            self.update()


def buffer_figures(plugin: Plugin) -> dict[str, Any] | None:
    """The figures of a buffered output, None for another plugin; a buffer counts for its primary only."""
    runner = getattr(plugin, "runner", None)
    if runner is None or runner.output is not plugin:
        return None
    found: dict[str, Any] = runner.stats()
    return found
