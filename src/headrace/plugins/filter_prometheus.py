"""Filter `prometheus`: counts what passes, and changes nothing (https://github.com/fluent/fluent-plugin-prometheus)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.plugin import Filter
from headrace.plugins.prometheus.metrics import Metrics

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch


class PrometheusFilter(Metrics, Filter):
    """Counts records for Prometheus."""

    def provision(self, context: Context) -> None:
        """Register the metrics."""
        self._counters = self.counters(self, context)

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """Count, and let everything pass."""
        for count in self._counters:
            count(tag, batch)
        return batch
