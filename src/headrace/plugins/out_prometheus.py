"""Output `prometheus`: counts what comes, and keeps nothing (https://github.com/fluent/fluent-plugin-prometheus)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.plugin import Output
from headrace.plugins.prometheus.metrics import Metrics

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch


class PrometheusOutput(Metrics, Output):
    """Counts records for Prometheus."""

    prefers_buffer = False

    def provision(self, context: Context) -> None:
        """Register the metrics."""
        self._counters = self.counters(self, context)

    def process(self, tag: str, batch: Batch) -> None:
        """Count."""
        for count in self._counters:
            count(tag, batch)
