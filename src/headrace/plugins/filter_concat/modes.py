"""When a text is whole. A mode takes an event of a stream and gives the events that are whole now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.plugins.filter_concat.streams import size_of
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    import re

    from headrace.pipeline.event import Event
    from headrace.plugins.filter_concat.filter import ConcatFilter
    from headrace.plugins.filter_concat.streams import Stream


class Mode:
    """What `take` gives goes on.

    indicator: a field without which an event passes by. dropped: fields to leave out. ordinal: a field to sort by.
    """

    indicator: str | None = None
    dropped: tuple[str, ...] = ()
    ordinal: str | None = None

    def take(self, stream: Stream, event: Event) -> list[Event]:
        """Add an event."""
        raise NotImplementedError


class Lines(Mode):
    """n_lines: so many."""

    def __init__(self, owner: ConcatFilter) -> None:
        self._owner = owner
        self._count = owner.n_lines or 1

    def take(self, stream: Stream, event: Event) -> list[Event]:
        """Add an event."""
        stream.events.append(event)
        return [self._owner.flush(stream)] if len(stream.events) >= self._count else []


class Patterns(Mode):
    """multiline_start_regexp, multiline_end_regexp, continuous_line_regexp."""

    def __init__(self, owner: ConcatFilter) -> None:
        self._owner = owner
        self._start = owner.multiline_start_regexp
        self._end = owner.multiline_end_regexp
        self._continues = owner.continuous_line_regexp

    def take(self, stream: Stream, event: Event) -> list[Event]:
        """Add an event."""
        text = event[1].get(self._owner.key)
        if text is not None and not isinstance(text, str):
            raise TypeError(f"the field {self._owner.key} is no text")
        line = text or ""
        last = _found(self._end, line)
        if _found(self._start, line):
            whole = [self._owner.flush(stream)] if stream.events else []
            stream.events.append(event)
            return [*whole, self._owner.flush(stream)] if last else whole
        if last:
            stream.events.append(event)
            return [self._owner.flush(stream)]
        if not stream.events:
            if self._start is not None:
                return [event]
            stream.events.append(event)
            return []
        if self._continues is None or _found(self._continues, line):
            stream.events.append(event)
            return []
        return [self._owner.flush(stream), event]


def _found(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is not None and pattern.search(text) is not None


class Partial(Mode):
    """partial_key, partial_value: a field that says that more follows."""

    def __init__(self, owner: ConcatFilter) -> None:
        assert owner.partial_key is not None
        self._owner = owner
        self.indicator = owner.partial_key
        self.dropped = () if owner.keep_partial_key else (owner.partial_key,)

    def take(self, stream: Stream, event: Event) -> list[Event]:
        """Add an event, within the limit of the stream's size."""
        owner = self._owner
        method = owner.buffer_overflow_method
        size = size_of(event[1])
        over = stream.size + size > owner.buffer_limit_size
        whole: list[Event] = []
        if over and method == "drop":
            stream.events, stream.size = [], 0
        elif over and method in {"truncate", "new"}:
            if stream.events:
                whole.append(owner.flush(stream))
            if method == "truncate":
                return whole
            stream.events, stream.size = [event], size
        else:
            stream.events.append(event)
            stream.size = size if over else stream.size + size
        if to_s(event[1].get(self.indicator)) != owner.partial_value and stream.events:
            whole.append(owner.flush(stream))
        return whole


_DOCKER: Final = ("partial_message", "partial_id", "partial_ordinal", "partial_last")
_JOURNALD: Final = (
    "CONTAINER_PARTIAL_MESSAGE",
    "CONTAINER_PARTIAL_ID",
    "CONTAINER_PARTIAL_ORDINAL",
    "CONTAINER_PARTIAL_LAST",
)
FORMATS: Final = {
    "docker-fluentd": (_DOCKER, _DOCKER[0]),
    "docker-journald": (_JOURNALD, _JOURNALD[1]),
    "docker-journald-lowercase": (tuple(name.lower() for name in _JOURNALD), _JOURNALD[1].lower()),
}
"""partial_metadata_format -> its fields (message, id, ordinal, last), and the one that every part has."""


class Metadata(Mode):
    """use_partial_metadata: the fields of Docker's log drivers."""

    def __init__(self, owner: ConcatFilter) -> None:
        self._owner = owner
        names, self.indicator = FORMATS[owner.partial_metadata_format]
        _, self.id, self.ordinal, self._last = names
        self.dropped = () if owner.keep_partial_metadata else tuple(names)

    def take(self, stream: Stream, event: Event) -> list[Event]:
        """Add an event."""
        stream.events.append(event)
        return [self._owner.flush(stream)] if to_s(event[1].get(self._last)) == "true" else []


class Cri(Mode):
    """use_partial_cri_logtag: P for a part, F for the last."""

    def __init__(self, owner: ConcatFilter) -> None:
        assert owner.partial_cri_logtag_key is not None
        self._owner = owner
        self._key = owner.partial_cri_logtag_key
        stream = (owner.partial_cri_stream_key,)
        self.dropped = stream if owner.keep_partial_key else (self._key, *stream)

    def take(self, stream: Stream, event: Event) -> list[Event]:
        """Add an event."""
        logtag = event[1].get(self._key)
        if not isinstance(logtag, str):
            raise TypeError(f"the field {self._key} is no text")
        stream.events.append(event)
        return [self._owner.flush(stream)] if logtag.split(":")[0] == "F" else []
