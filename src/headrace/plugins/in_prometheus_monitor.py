"""Source `prometheus_monitor`: fluentd_status_* of every plugin (https://github.com/fluent/fluent-plugin-prometheus)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.plugins.prometheus.monitor import Monitor
from headrace.plugins.prometheus.registry import GAUGE

if TYPE_CHECKING:
    from headrace.pipeline.context import Context

_FIGURES: Final = (
    ("buffer_newest_timekey", "fluentd_status_buffer_newest_timekey", "Newest timekey in buffer."),
    ("buffer_oldest_timekey", "fluentd_status_buffer_oldest_timekey", "Oldest timekey in buffer."),
    ("buffer_queue_length", "fluentd_status_buffer_queue_length", "Current buffer queue length."),
    ("buffer_total_queued_size", "fluentd_status_buffer_total_bytes", "Current total size of queued buffers."),
    ("retry_count", "fluentd_status_retry_count", "Current retry counts."),
)


class PrometheusMonitorInput(Monitor):
    """Tells the state of buffers."""

    own_labels = ("plugin_id", "plugin_category", "type")

    def register(self, context: Context) -> None:
        """Make the gauges."""
        self._families = [(key, self.family(context, GAUGE, name, doc)) for key, name, doc in _FIGURES]

    def update(self) -> None:
        """Look at every plugin."""
        for info in self.infos():
            timekeys = info.get("buffer_timekeys")
            if timekeys:
                info["buffer_newest_timekey"], info["buffer_oldest_timekey"] = timekeys[-1], timekeys[0]
            own = {name: info[name] for name in self.own_labels}
            for key, family in self._families:
                if info.get(key) is not None:
                    self.put(family, info[key], **own)
