"""Counts batches, events and (when told to) bytes on their way into outputs and filters.

Only a configuration with a monitor_agent pays for it: the methods of the plugins are replaced when it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.pipeline.plugin import Filter, Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch
    from headrace.pipeline.plugin import Plugin


class Meter:
    """What went into one plugin. size: bytes, 0 unless they are asked for."""

    __slots__ = ("batches", "events", "size", "sized")

    def __init__(self, *, sized: bool) -> None:
        self.batches = 0
        self.events = 0
        self.size = 0
        self.sized = sized

    def counting(self, method: Callable[[str, Batch], Any]) -> Callable[[str, Batch], Any]:
        """The same method, counted."""

        def counted(tag: str, batch: Batch) -> Any:
            result = method(tag, batch)
            self.batches += 1
            self.events += batch.count
            if self.sized:
                self.size += _size(batch)
            return result

        return counted


def _size(batch: Batch) -> int:
    try:
        return len(batch.packed())
    except (ValueError, TypeError, OverflowError):
        return 0


def install(context: Context) -> dict[Plugin, Meter]:
    """Put a meter before each output and filter that has none; return all of them."""
    meters: dict[Plugin, Meter] = {}
    for plugin in context.plugins:
        name = "emit" if isinstance(plugin, Output) else ""
        if isinstance(plugin, Filter):
            name = "filter_later" if plugin.waits else "filter_batch"
        if not name:
            continue
        before: Meter | None = plugin.__dict__.get("meter")
        if before is None:
            before = plugin.__dict__["meter"] = Meter(sized=context.settings.size_metrics)
            plugin.__dict__[name] = before.counting(getattr(plugin, name))
        meters[plugin] = before
    for router in context.labels.values():
        router.reroute()
    return meters
