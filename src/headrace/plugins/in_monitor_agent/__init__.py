"""The source `monitor_agent`: the figures of all plugins by HTTP (https://docs.fluentd.org/input/monitor_agent).

input.py   the source: parameters, pages, events at an interval
info.py    what is told of a plugin, by Fluentd's names
meter.py   counts what goes into outputs and filters, for nobody else does
"""

from headrace.plugins.in_monitor_agent.input import MonitorAgentInput

__all__ = ["MonitorAgentInput"]
