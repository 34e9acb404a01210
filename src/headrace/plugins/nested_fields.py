"""Records without one of their fields, for filters, which do not change what they get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pipeline.accessor import Accessor
    from headrace.pipeline.event import Record


def without(record: Record, key: Accessor) -> Record:
    """A copy without one place; what is not on the way to it is shared."""
    copy = dict(record)
    holder: Any = copy
    for step in key.path[:-1]:
        try:
            inner = holder[step].copy()
        except (KeyError, IndexError, TypeError, AttributeError):
            return copy
        holder[step] = inner
        holder = inner
    last = key.path[-1]
    if isinstance(holder, dict):
        holder.pop(last, None)
    elif isinstance(holder, list) and isinstance(last, int) and -len(holder) <= last < len(holder):
        holder.pop(last)
    return copy
