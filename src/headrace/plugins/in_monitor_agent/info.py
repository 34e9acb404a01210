"""What is told of a plugin, by the names and in the order that Fluentd has. No secret is ever in it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.declare import declared_params
from headrace.conf.params import literal_of
from headrace.pipeline.dump import HIDDEN, is_secret, without_secrets
from headrace.pipeline.plugin import Filter, Output, Plugin, Source

if TYPE_CHECKING:
    from headrace.pipeline.context import Context
    from headrace.pipeline.runner import Runner
    from headrace.plugins.in_monitor_agent.meter import Meter

_SEVERAL: Final = frozenset({"copy", "roundrobin"})
"""Outputs that Fluentd does not count as output plugins, for they only lead to others."""
_EVENTS: Final = ("events", "emitted")
"""Names that sources have for the events they emitted."""


def listed(context: Context) -> list[Plugin]:
    """The plugins that are told of: sources, then outputs and filters, of the top level and of each label."""
    plugins: list[Plugin] = [plugin for plugin in context.plugins if isinstance(plugin, Source)]
    for router in context.labels.values():
        inside = [plugin for plugin in context.plugins if plugin.router is router]
        outputs = [plugin for plugin in inside if isinstance(plugin, Output) and not _is_secondary(plugin)]
        # Stores are made before the output that leads to them, and are told of after it.
        plugins += sorted(outputs, key=_line)
        plugins += [plugin for plugin in inside if isinstance(plugin, Filter)]
    return plugins


def _line(plugin: Plugin) -> tuple[str, int]:
    place = plugin.place
    return (place.file, place.line) if place is not None else ("", 0)


def _is_secondary(output: Output) -> bool:
    return output.runner is not None and output.runner.output is not output


def category(plugin: Plugin) -> str:
    """Fluentd's word for the kind."""
    return plugin.kind if plugin.kind in {"input", "output", "filter"} else "unknown"


def info_of(
    plugin: Plugin,
    meter: Meter | None,
    *,
    config: bool,
    retry: bool,
    debug: bool = False,
    ivars: list[str] | None = None,
) -> dict[str, Any]:
    """Everything about one plugin. config: its parameters; retry: the state of retries; debug: all its figures."""
    several = plugin.type_ in _SEVERAL
    told: dict[str, Any] = {
        "plugin_id": plugin.plugin_id,
        "plugin_category": category(plugin),
        "type": plugin.type_,
    }
    if config:
        told["config"] = config_of(plugin)
    is_output = isinstance(plugin, Output) and not several
    told["output_plugin"] = is_output
    runner = plugin.runner if isinstance(plugin, Output) else None
    running = runner if runner is not None and hasattr(runner, "lanes") else None
    if running is not None:
        told["buffer_queue_length"] = len(running.buffer.queued)
        told["buffer_timekeys"] = sorted(
            {chunk.meta.timekey for chunk in running.buffer.everything() if chunk.meta.timekey is not None}
        )
        told["buffer_total_queued_size"] = running.buffer.used
    if isinstance(plugin, Output):
        told["retry_count"] = running.delivery.failures if running is not None else 0
    else:
        told["retry_count"] = None
    if not several:
        told["emit_records"] = meter.events if meter is not None else _emitted(plugin)
        told["emit_size"] = meter.size if meter is not None else 0
    if is_output:
        told.update(_figures(running, meter))
        if retry:
            told["retry"] = _retry(running) if running is not None else {}
    if debug or ivars is not None:
        figures = dict(plugin.stats())
        if running is not None:
            figures.update(running.stats())
        told["instance_variables"] = (
            figures if ivars is None else {name: figures[name] for name in ivars if name in figures}
        )
    return told


def config_of(plugin: Plugin) -> dict[str, Any]:
    """The parameters as they are written, secrets hidden."""
    items = {key: item for item in declared_params(type(plugin)) for key in item.keys}
    found: dict[str, Any] = {}
    for child in plugin.directive.block or () if plugin.directive is not None else ():
        if child.block is None:
            item = items.get(child.name)
            hidden = is_secret(child.name, item)
            found[child.name] = HIDDEN if hidden else without_secrets(literal_of(child), item)
    return found


def _emitted(plugin: Plugin) -> int:
    figures = plugin.stats()
    return next((figures[name] for name in _EVENTS if isinstance(figures.get(name), int)), 0)


def _figures(runner: Runner | None, meter: Meter | None) -> dict[str, Any]:
    figures: dict[str, Any] = {"emit_count": meter.batches if meter is not None else 0}
    if runner is None:
        return {**figures, "write_count": 0, "rollback_count": 0, "slow_flush_count": 0, "flush_time_count": 0}
    buffer, delivery = runner.buffer, runner.delivery
    staged = sum(chunk.size for chunk in buffer.staged.values())
    return {
        **figures,
        "write_count": delivery.attempts,
        "rollback_count": delivery.failures,
        "slow_flush_count": delivery.slow,
        "flush_time_count": round(delivery.flush_time * 1000),
        "buffer_stage_length": len(buffer.staged),
        "buffer_stage_byte_size": staged,
        "buffer_queue_byte_size": buffer.used - staged,
        "buffer_available_buffer_space_ratios": round(100 * (1 - buffer.used / buffer.limits.total), 1),
    }


def _retry(runner: Runner) -> dict[str, Any]:
    gate, clock = runner.delivery.gate, runner.context.clock
    if not gate.step:
        return {}
    now, wall = clock.now(), clock.wall_ns() / 1e9

    def text(moment: float | None) -> str:
        shown = wall if moment is None else wall + moment - now
        return datetime.fromtimestamp(shown).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")

    return {
        "start": text(gate.started),
        "steps": gate.step,
        "next_time": text(gate.next_time if gate.next_time < now + 1e9 else None),
    }
