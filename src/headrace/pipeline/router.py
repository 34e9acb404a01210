"""Where an event goes: the first <match> that fits its tag, through the <filter>s that stand before it.

There is one `Router` for the top level and one for each <label>. What a tag leads to is worked out once
and remembered; the memory is bounded by two generations of `CACHE_SIZE` tags, so that tags without end
(one for each request, say) cost time but no memory.

Errors:
- BufferOverflow goes back to whoever emitted: it is a status for the client, not an event.
- Any other error of an output sends the batch to the @ERROR label, when there is one, else back to
  whoever emitted. Records that a filter or formatter rejects come by `emit_error_event`.
- What fails while an error event is under way (inside @ERROR, or in a label that @ERROR leads to) is
  logged once and goes no further.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Final

from headrace.errors import BufferOverflow
from headrace.pipeline.dlq import marked, refused
from headrace.pipeline.event import Batch, Record
from headrace.pipeline.match import Pattern
from headrace.pipeline.throttle import Throttle
from headrace.pipeline.waiting import Lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from headrace.pipeline.plugin import Collector, Filter
    from headrace.pipeline.refused import Refused

    Route = Callable[[str, Batch], Awaitable[None] | None]

CACHE_SIZE: Final = 1024
_DEEP: Final = 500
"""Frames, of the 1000 that Python allows, above which a RecursionError is not yet told of."""
_MAGIC: Final = frozenset("*?{}[]/\\")


class ErrorDesk:
    """The one place where events with errors go; all routers of a pipeline share it."""

    def __init__(self, log: logging.Logger) -> None:
        self.collector: Router | None = None
        """The router of <label @ERROR>."""
        self.dlq: Router | None = None
        """The router of <label @DLQ>."""
        self.log = log
        self.events = 0
        self.lost = 0
        self.sent_to_dlq = 0
        self.refused: Refused | None = None
        """Keeps what would be lost, as dead letters."""
        self._busy = False
        self._lettering = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._sent = Throttle()
        self._dumped = Throttle()
        self._terminal = Throttle()
        self._refused = Throttle()

    def write_less(self, interval: float) -> None:
        """Write one line in each interval about batches whose output raised (emit_error_log_interval)."""
        self._refused = Throttle(1, interval)

    def event(
        self, tag: str, time: int, record: Record, error: BaseException, source: Router
    ) -> Awaitable[None] | None:
        """One record that somebody rejected: to @ERROR, or into the log. source: the label it happened in."""
        self.events += 1
        if source is self.collector:
            if not self._keep(source, tag, time, record, error):
                self._end(tag, 1, error)
            return None
        if self.collector is None:
            if not self._keep(source, tag, time, record, error):
                self.lost += 1
            shown = _shorten(record)
            self._dumped.log(
                self.log,
                logging.WARNING,
                "dump an error event: error=%r tag=%r time=%d record=%s",
                error,
                tag,
                time,
                shown,
            )
            return None
        return self._send(tag, Batch.one(time, record), error)

    def _keep(self, source: Router, tag: str, time: int, record: Record, error: BaseException) -> bool:
        """Make a record that nobody takes a dead letter; False when it cannot be one."""
        if self._to_dlq(source, tag, time, record, error):
            return True
        return self.refused is not None and self.refused.add(source.name, tag, time, record, error)

    def _to_dlq(self, source: Router, tag: str, time: int, record: Record, error: BaseException) -> bool:
        if self.dlq is None or source is self.dlq or self._lettering or not isinstance(record, dict) or marked(record):
            return False
        self._lettering = True
        try:
            waiting = self.dlq.emit(tag, Batch.one(time, refused(record, source.name, error)))
        except Exception as second:  # noqa: BLE001 - the store of dead letters is what is left
            self._terminal.log(self.log, logging.ERROR, "an error inside @DLQ is final: error=%r tag=%r", second, tag)
            return False
        finally:
            self._lettering = False
        if waiting is not None:
            task = asyncio.ensure_future(waiting)
            self._waiting.add(task)
            task.add_done_callback(self._taken)
        self.sent_to_dlq += 1
        return True

    def _taken(self, task: asyncio.Future[None]) -> None:
        self._waiting.discard(task)
        error = BufferOverflow("@DLQ has no room") if task.cancelled() else task.exception()
        if error is not None:
            self.sent_to_dlq -= 1
            self.lost += 1
            self._terminal.log(self.log, logging.ERROR, "an error inside @DLQ is final, an event is gone: %r", error)

    def batch(self, tag: str, batch: Batch, error: BaseException) -> Awaitable[None] | None:
        """A batch whose output raised; raises the error again when there is no @ERROR."""
        if self.collector is None:
            self._refused.log(self.log, logging.WARNING, "emit transaction failed: error=%r tag=%r", error, tag)
            raise error
        self.events += batch.count
        return self._send(tag, batch, error)

    def _send(self, tag: str, batch: Batch, error: BaseException) -> Awaitable[None] | None:
        assert self.collector is not None
        if self._busy:
            self._end(tag, batch.count, error)
            return None
        self._sent.log(self.log, logging.WARNING, "send an error event to @ERROR: error=%r tag=%r", error, tag)
        self._busy = True
        try:
            return self.collector.emit(tag, batch)
        except Exception as second:  # noqa: BLE001 - nothing may come out of the last resort
            self._end(tag, batch.count, second)
            return None
        finally:
            self._busy = False

    def _end(self, tag: str, count: int, error: BaseException) -> None:
        self.lost += count
        message = "an error inside @ERROR is final, %d events are gone: error=%r tag=%r"
        self._terminal.log(self.log, logging.ERROR, message, count, error, tag)


class Router:
    """The rules of one label, in the order of the configuration.

    name: "@ROOT", "@ERROR" or the label. quiet: no warning about tags that nothing takes (@FLUENT_LOG).
    """

    def __init__(self, name: str, desk: ErrorDesk, log: logging.Logger, *, quiet: bool = False) -> None:
        self.name = name
        self.desk = desk
        self.log = log
        self.unmatched = 0
        """Events that no <match> took."""
        self._quiet = quiet
        self._rules: list[tuple[Pattern, Filter | None, Collector | None]] = []
        self._lines = Lines(desk.batch)
        self._hot: dict[str, Route] = {}
        self._cold: dict[str, Route] = {}
        self._warned = Throttle()

    def add_filter(self, pattern: str, plugin: Filter) -> None:
        """Append a <filter>. Raises ValueError for a pattern that cannot be read."""
        self._rules.append((Pattern(pattern), plugin, None))
        self._forget()

    def add_output(self, pattern: str, collector: Collector) -> None:
        """Append a <match>. Raises ValueError for a pattern that cannot be read."""
        self._rules.append((Pattern(pattern), None, collector))
        self._forget()

    def matches(self, tag: str) -> bool:
        """Whether an output takes this tag."""
        return self._find(tag)[1] is not None

    def literal_tags(self) -> Iterator[str]:
        """Yield the patterns of its outputs that are plain tags."""
        for pattern, _plugin, collector in self._rules:
            if collector is not None:
                yield from (text for text in pattern.text.split() if not _MAGIC.intersection(text))

    def way_of(self, tag: str) -> tuple[list[Filter], Collector | None]:
        """The filters that a tag goes through, and the output that takes it."""
        return self._find(tag)

    def taker_of(self, tag: str) -> Collector | None:
        """The output that takes a tag."""
        return self._find(tag)[1]

    def only_counts(self, tag: str) -> bool:
        """Whether nobody on the way of a tag looks at its events, so that nobody need look whether they are any."""
        taker = getattr(self._hot.get(tag) or self._route(tag), "__self__", None)
        return getattr(taker, "only_counts", False) and getattr(taker, "runner", None) is None

    def looks_into(self, tag: str) -> bool:
        """Whether whoever comes first on the way of a tag looks at its events: a filter, or a buffer that formats."""
        taker = getattr(self._hot.get(tag) or self._route(tag), "__self__", None)
        return taker is None or getattr(taker, "reads", False)

    def reroute(self) -> None:
        """Work out anew where tags lead: methods of plugins were replaced."""
        self._forget()

    def emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Send a batch on its way; see `headrace.pipeline.plugin` for what comes back.

        tag: any text, bytes that are not UTF-8 by surrogateescape.
        """
        route = self._hot.get(tag) or self._route(tag)
        try:
            return route(tag, batch)
        except BufferOverflow:
            raise
        except RecursionError as error:
            if _deep():
                raise  # there is no room to tell of it here; whoever is further out tells
            return self.desk.batch(tag, batch, error)
        except Exception as error:  # noqa: BLE001 - an output's error concerns its events, not its source
            return self.desk.batch(tag, batch, error)

    def emit_error_event(self, tag: str, time: int, record: Record, error: BaseException) -> Awaitable[None] | None:
        """Send one rejected record to the @ERROR label, or into the log; never raises."""
        return self.desk.event(tag, time, record, error, self)

    def _forget(self) -> None:
        self._hot = {}
        self._cold = {}

    def _route(self, tag: str) -> Route:
        route = self._cold.get(tag)
        if route is None:
            filters, collector = self._find(tag)
            last: Route = collector.emit if collector is not None else self._unmatched
            if any(plugin.stateful for plugin in filters):
                last = _without_id(last)
            waits = any(plugin.waits for plugin in filters)
            route = self._lines.route(filters, last) if waits else _build(filters, last)
        if len(self._hot) >= CACHE_SIZE:
            self._cold = self._hot
            self._hot = {}
        self._hot[tag] = route
        return route

    def _find(self, tag: str) -> tuple[list[Filter], Collector | None]:
        filters: list[Filter] = []
        for pattern, plugin, collector in self._rules:
            if pattern.matches(tag):
                if plugin is None:
                    return filters, collector
                filters.append(plugin)
        return filters, None

    def _unmatched(self, tag: str, batch: Batch) -> None:
        self.unmatched += batch.count
        if not self._quiet:
            self._warned.log(self.log, logging.WARNING, "no patterns matched: tag=%r label=%s", tag, self.name)


def _deep() -> bool:
    """Whether the stack has so many frames that logging may not work."""
    try:
        sys._getframe(_DEEP)  # noqa: SLF001 - there is no other way to ask without walking the stack
    except ValueError:
        return False
    return True


def _build(filters: Sequence[Filter], last: Route) -> Route:
    if not filters:
        return last

    def through(tag: str, batch: Batch) -> Awaitable[None] | None:
        name, ack = batch.id, batch.ack
        for plugin in filters:
            plugin.received += batch.count
            batch = plugin.filter_batch(tag, batch)
            plugin.passed += batch.count
            if not batch.count:
                return None
        if name is not None:
            batch.id = name
        if ack:
            batch.ack = ack
        return last(tag, batch)

    return through


def _without_id(last: Route) -> Route:
    """The end of a way on which events of several batches may have come together."""

    def end(tag: str, batch: Batch) -> Awaitable[None] | None:
        if batch.id is not None:
            batch = batch.with_ack(batch.ack)  # another branch may hold this very batch
            batch.id = None
        return last(tag, batch)

    return end


def _shorten(record: Record, limit: int = 2000) -> str:
    try:
        text = repr(record)
    except RecursionError:
        return "(nested too deeply)"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
