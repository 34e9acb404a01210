"""What the monitor sources share: labels, the interval, and figures of other plugins as gauges and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headrace.conf.params import raw_section, time
from headrace.errors import ConfError
from headrace.pipeline.plugin import Source
from headrace.plugins.in_monitor_agent.info import info_of, listed
from headrace.plugins.in_monitor_agent.meter import install
from headrace.plugins.prometheus.labels import constants, expand_constants, is_accessor
from headrace.plugins.prometheus.metrics import common_labels
from headrace.plugins.prometheus.registry import Family, registry_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.pipeline.context import Context
    from headrace.plugins.prometheus.registry import Labels


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
        self._told: set[tuple[Family, Labels]] = set()
        self.register(context)
        registry_of(context).collect_with(self._collect)

    async def start(self) -> None:
        """Count from now on what goes into outputs."""
        install(self.context)

    def register(self, context: Context) -> None:
        """Make the families."""
        raise NotImplementedError

    def infos(self) -> Iterator[dict[str, Any]]:
        """What monitor_agent tells of each plugin; from the first call on, batches and events are counted too."""
        meters = install(self.context)
        for plugin in listed(self.context):
            yield info_of(plugin, meters.get(plugin), config=False, retry=False)

    def update(self) -> None:
        """Bring the families up to date."""
        raise NotImplementedError

    def family(self, context: Context, kind: str, name: str, doc: str) -> Family:
        """A family with the configured labels and `own_labels`."""
        return registry_of(context).family(name, kind, doc, (*self._constant, *self.own_labels))

    def put(self, family: Family, value: Any, **own: str) -> None:
        """Set the value of a gauge, or of a counter that is counted elsewhere."""
        labels = {**self._constant, **own}
        key = tuple(labels[name] for name in family.labels)
        family.set(key, value)
        self._told.add((family, key))

    def _collect(self) -> None:
        now = self.context.clock.now()
        if self._updated is None or now - self._updated >= self.interval:
            self._updated = now
            before, self._told = self._told, set()
            self.update()
            for family, labels in before - self._told:  # files and other things that are no more
                family.values.pop(labels, None)
