"""The `<parse>` section without another parser: the Content-Type decides the format, this the time field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import Configurable, boolean, enum, string
from headrace.plugins.in_http.body import bad
from headrace.plugins.in_http.times import from_number, from_text

if TYPE_CHECKING:
    from collections.abc import Callable


class DefaultParse(Configurable):
    """Where a record's time comes from."""

    type_ = string(default="in_http", key="@type", doc="in_http: the Content-Type decides the format")
    time_key = string(default="time", doc="Field of a record that is its time")
    keep_time_key = boolean(default=False, doc="Leave that field in the record")
    time_type = enum(
        ("number", "float", "unixtime"),
        default="number",
        doc="What the field holds: a number; float or unixtime: a text with a number is taken too",
    )

    def converter(self) -> Callable[[Any], int]:
        """A function: value of the field -> nanoseconds. It raises HttpError 400."""
        return from_number if self.time_type == "number" else _number_or_text


def _number_or_text(value: Any) -> int:
    if isinstance(value, str):
        time = from_text(value)
        if time is None:
            raise bad(f"invalid time: {value!r}")
        return time
    return from_number(value)
