"""Source `prometheus_output_monitor`: fluentd_output_status_* of every output.

https://github.com/fluent/fluent-plugin-prometheus
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from headrace.conf.params import boolean
from headrace.plugins.prometheus.monitor import Monitor
from headrace.plugins.prometheus.registry import COUNTER, GAUGE

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.plugin import Plugin

_PREFIX: Final = "fluentd_output_status_"
_GAUGES: Final = (
    ("buffer_total_queued_size", "buffer_total_bytes", "Current total size of stage and queue buffers."),
    ("buffer_stage_length", "buffer_stage_length", "Current length of stage buffers."),
    ("buffer_stage_byte_size", "buffer_stage_byte_size", "Current total size of stage buffers."),
    ("buffer_queue_length", "buffer_queue_length", "Current length of queue buffers."),
    ("buffer_queue_byte_size", "buffer_queue_byte_size", "Current total size of queue buffers."),
    ("buffer_available_buffer_space_ratios", "buffer_available_space_ratio", "Ratio of available space in buffer."),
    ("buffer_newest_timekey", "buffer_newest_timekey", "Newest timekey in buffer."),
    ("buffer_oldest_timekey", "buffer_oldest_timekey", "Oldest timekey in buffer."),
    ("rollback_count", "rollback_count", "Current rollback counts."),
    ("retry_wait", "retry_wait", "Current retry wait"),
)
_COUNTERS: Final = (
    ("retry_count", "retry_count", "Current retry counts."),
    ("retry_count", "num_errors", "Current number of errors."),
    ("emit_count", "emit_count", "Current emit counts."),
    ("emit_records", "emit_records", "Current emit records."),
    ("write_count", "write_count", "Current write counts."),
    ("flush_time_count", "flush_time_count", "Total flush time."),
    ("slow_flush_count", "slow_flush_count", "Current slow flush counts."),
)


class PrometheusOutputMonitorInput(Monitor):
    """Tells the state and the counts of outputs."""

    own_labels = ("plugin_id", "type")

    gauge_all = boolean(default=True, doc="Counts are gauges; false: counters")

    def register(self, context: Context) -> None:
        """Make the gauges and counters."""
        kind = GAUGE if self.gauge_all else COUNTER
        self._families = [
            (key, self.family(context, wanted, _PREFIX + name, doc))
            for wanted, table in ((GAUGE, _GAUGES), (kind, _COUNTERS))
            for key, name, doc in table
        ]

    def update(self) -> None:
        """Look at every output."""
        waits = {plugin.plugin_id: _retry_wait(plugin) for plugin in self.context.plugins}
        for info in self.infos():
            if info["plugin_category"] != "output":
                continue
            timekeys = info.get("buffer_timekeys")
            if timekeys:
                info["buffer_newest_timekey"], info["buffer_oldest_timekey"] = timekeys[-1], timekeys[0]
            info["retry_wait"] = waits.get(info["plugin_id"])
            for key, family in self._families:
                if info.get(key) is not None:
                    self.put(family, info[key], plugin_id=info["plugin_id"], type=info["type"])


def _retry_wait(plugin: Plugin) -> float | None:
    """Seconds from the first failure of a series to the next try; 0 without one, None without a buffer."""
    runner = getattr(plugin, "runner", None)
    if runner is None or runner.output is not plugin or not hasattr(runner, "delivery"):
        return None
    gate = runner.delivery.gate
    if not gate.step or gate.started is None or not math.isfinite(gate.next_time):
        return 0.0
    return float(gate.next_time - gate.started)
