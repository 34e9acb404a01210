"""The <inject> section: values that go into each record before it is formatted (docs.fluentd.org, Config: Inject)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import enum, string
from headrace.pipeline.event import NS
from headrace.plugins.time_format import time_formatter
from headrace.plugins.time_params import ZoneParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.plugin import Output

    Injector = Callable[[str, int, Record], Record]
    """(tag, time, record) -> a new record."""


class Inject(ZoneParams):
    """What is added to a record."""

    hostname_key = string(default=None, doc="Field that gets the name of the machine")
    hostname = string(default=None, doc="The name to put there; default: this machine's")
    worker_id_key = string(default=None, doc="Field that gets the number of the worker")
    tag_key = string(default=None, doc="Field that gets the tag")
    time_key = string(default=None, doc="Field that gets the time")
    time_type = enum(
        ("float", "unixtime", "unixtime_millis", "unixtime_micros", "unixtime_nanos", "string"),
        default="float",
        doc="Form of the time: float is seconds to the microsecond, string is by time_format",
    )

    def validate(self, problems: Problems) -> None:
        """Report a time format that nothing uses."""
        super().validate(problems)
        if self.time_format is not None and self.time_key is None:
            problems.warn("time_format without time_key has no effect", self.place_of("time_format"))

    def injector(self, context: Context, owner: Output | None = None) -> Injector | None:
        """The function that adds the values; None when the section adds nothing.

        owner: reported when its chunk keys name what is added only afterwards.
        """
        constants: dict[str, object] = {}
        if self.hostname_key is not None:
            constants[self.hostname_key] = self.hostname or context.hostname
            if owner is not None and owner.runner is not None and self.hostname_key in owner.runner.keys.names:
                context.problems.error(
                    f'hostname_key "{self.hostname_key}" cannot be a chunk key: it is added after chunks are chosen',
                    self.place_of("hostname_key"),
                    hint="add it by a filter",
                )
        if self.worker_id_key is not None:
            constants[self.worker_id_key] = context.worker_id
        tag_key, time_key = self.tag_key, self.time_key
        if not constants and tag_key is None and time_key is None:
            return None
        time_value = self._time_value()

        def inject(tag: str, time: int, record: Record) -> Record:
            made = {**record, **constants}
            if tag_key is not None:
                made[tag_key] = tag
            if time_key is not None:
                made[time_key] = time_value(time)
            return made

        return inject

    def _time_value(self) -> Callable[[int], object]:
        form = self.time_type
        if form == "float":
            return lambda time: time // 1000 / 1e6
        if form == "string":
            return time_formatter(self.time_format, self.zone)
        unit = {"unixtime": NS, "unixtime_millis": 1_000_000, "unixtime_micros": 1_000, "unixtime_nanos": 1}[form]
        return lambda time: time // unit
