"""Source `prometheus_tail_monitor`: fluentd_tail_file_* of every file that a tail source follows.

https://github.com/fluent/fluent-plugin-prometheus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.plugins.prometheus.monitor import Monitor
from headrace.plugins.prometheus.registry import GAUGE

if TYPE_CHECKING:
    from headrace.pipeline.context import Context

_OF_FILE: Final = (
    ("position", "fluentd_tail_file_position", "Current position of file."),
    ("inode", "fluentd_tail_file_inode", "Current inode of file."),
)
_OF_SOURCE: Final = (
    ("closed_file_count", "fluentd_tail_file_closed", "Number of files closed."),
    ("opened_file_count", "fluentd_tail_file_opened", "Number of files opened."),
    ("rotated_file_count", "fluentd_tail_file_rotated", "Number of files rotated."),
    ("throttled_log_count", "fluentd_tail_file_throttled", "Number of times files got throttled."),
)
"""These count for the whole source, and are told with each of its files, as in the original."""


class PrometheusTailMonitorInput(Monitor):
    """Tells where tail sources are in their files."""

    own_labels = ("plugin_id", "type", "path")

    def register(self, context: Context) -> None:
        """Make the gauges."""
        self._families = [(key, self.family(context, GAUGE, name, doc)) for key, name, doc in (*_OF_FILE, *_OF_SOURCE)]

    def update(self) -> None:
        """Look at every file."""
        for plugin in self.context.plugins:
            followed = getattr(plugin, "followed", None)
            if plugin.type_ != "tail" or followed is None:
                continue
            figures = plugin.stats()
            for path, inode, position in followed():
                found = {**figures, "inode": inode, "position": position}
                for key, family in self._families:
                    if key in found:
                        self.put(family, found[key], plugin_id=plugin.plugin_id, type="tail", path=path)
