"""Output `copy` (docs.fluentd.org, Output Plugins, copy): each event to several stores.

Each store has its own buffer and its own errors: a store that fails keeps no other from its events, whatever its
place (in Fluentd the stores behind it get nothing). What fails without `ignore_error` is told to whoever emitted
after all stores had their turn; a source that sends the batch again then reaches the others twice.

`ignore_if_prev_success` asks whether the store before took the batch: into its buffer, or, where it has none, to
its destination. What becomes of a buffered chunk later is that store's matter: <secondary> is the way to another
destination then.

Where a source has `ack_mode delivery`, its answer waits until all required stores have delivered: those without
`ignore_error`. One that another store stands in for (ignore_if_prev_success) is required too: the other gets the
batch when it is given up.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, enum, raw_section
from headrace.errors import ConfError
from headrace.pipeline.ack import BUFFER, DELIVERY
from headrace.pipeline.event import Batch, derived_id, pack_value, unpack_value
from headrace.pipeline.plugin import Output
from headrace.pipeline.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record

IGNORE_ERROR: Final = "ignore_error"
IF_NOT_PREVIOUS: Final = "ignore_if_prev_success"

_COPIES: Final[dict[str, Callable[[Record], Record]]] = {
    "shallow": lambda record: record.copy(),
    "deep": lambda record: unpack_value(pack_value(record)),
    "marshal": copy.deepcopy,
}


class _Store:
    """One store and what its argument says."""

    def __init__(self, output: Output, arguments: set[str]) -> None:
        self.output = output
        self.ignores_errors = IGNORE_ERROR in arguments
        self.is_fallback = IF_NOT_PREVIOUS in arguments
        self.required = not self.ignores_errors
        self.errors = Throttle()


class _Turn:
    """One batch on its way: whether the last store took it, who has not answered, and the error to raise."""

    def __init__(self) -> None:
        self.taken = False
        self.pending: list[tuple[_Store, Awaitable[None]]] = []
        self.failure: Exception | None = None


class CopyOutput(Output):
    """Gives events to all its stores."""

    routes = True

    copy_mode = enum(
        ("no_copy", "shallow", "deep", "marshal"),
        default="no_copy",
        doc="What stores get: the same records, copies of them, or copies of everything in them too. Nothing here "
        "changes a record of another; plugins from elsewhere may",
    )
    deep_copy = boolean(default=False, deprecated="write copy_mode shallow", doc="The old name of copy_mode shallow")
    stores = raw_section(name="store", multi=True, required=True, doc="An output; it may be told ignore_error")

    def validate(self, problems: Problems) -> None:
        """Read the arguments of the stores."""
        super().validate(problems)
        self._arguments = [self._read(store, problems) for store in self.stores]
        if self._arguments and IF_NOT_PREVIOUS in self._arguments[0]:
            problems.error(f"{IF_NOT_PREVIOUS} has no meaning in the first <store>", self.stores[0].place)
        if all(arguments == {IGNORE_ERROR} for arguments in self._arguments):
            problems.warn("every <store> says ignore_error: what they all refuse is lost", self.place)

    @staticmethod
    def _read(store: Directive, problems: Problems) -> set[str]:
        words = set(" ".join(store.args).replace(",", " ").split())
        for word in sorted(words - {IGNORE_ERROR, IF_NOT_PREVIOUS}):
            problems.error(f'<store> cannot be told "{word}"', store.place, hint=f"{IGNORE_ERROR}, {IF_NOT_PREVIOUS}")
        return words

    def provision(self, context: Context) -> None:
        """Make the stores."""
        self._stores: list[_Store] = []
        for directive, arguments in zip(self.stores, self._arguments, strict=True):
            output = context.make("output", directive, router=self.router)
            if output is not None:
                self._stores.append(_Store(output, arguments))
        for store, following in zip(self._stores, self._stores[1:], strict=False):
            store.required = store.required or following.is_fallback
        self.passes_to = [router for store in self._stores for router in store.output.passes_to]
        if not self._stores:
            raise ConfError("no <store> can be used", self.place)
        self._copy = _COPIES.get("shallow" if self.deep_copy else self.copy_mode)

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Give a batch to the stores. Raises the first error that is not ignored, after all had their turn."""
        turn = _Turn()
        for number, store in enumerate(self._stores):
            if store.is_fallback and turn.pending and turn.pending[-1][0] is self._stores[number - 1]:
                # Whether the store before takes it is known only later.
                return self._later(tag, batch, number, turn)
            self._offer(tag, batch, store, turn)
        if turn.pending:
            return self._later(tag, batch, len(self._stores), turn)
        if turn.failure is not None:
            raise turn.failure
        return None

    async def _later(self, tag: str, batch: Batch, number: int, turn: _Turn) -> None:
        """Wait for the stores that have not answered, and go on with store `number`."""
        await self._settle(turn)
        for store in self._stores[number:]:
            self._offer(tag, batch, store, turn)
            await self._settle(turn)
        if turn.failure is not None:
            raise turn.failure

    def _offer(self, tag: str, batch: Batch, store: _Store, turn: _Turn) -> None:
        if store.is_fallback and turn.taken:
            turn.taken = False
            return
        try:
            if batch.ack == DELIVERY and not store.required:
                batch = batch.with_ack(BUFFER)
            waiting = store.output.emit(tag, self._copied(batch, store))
        except Exception as error:  # noqa: BLE001 - a store's error is its own
            self._failed(store, error, turn)
            return
        turn.taken = True
        if waiting is not None:
            turn.pending.append((store, waiting))

    async def _settle(self, turn: _Turn) -> None:
        """Wait for all answers at the same time: a store that has none yet holds no other up."""
        pending, turn.pending = turn.pending, []
        answers = await asyncio.gather(*(waiting for _, waiting in pending), return_exceptions=True)
        for (store, _), answer in zip(pending, answers, strict=True):
            turn.taken = True
            if isinstance(answer, Exception):
                self._failed(store, answer, turn)
            elif answer is not None:  # cancelled: the process ends
                raise answer

    def _failed(self, store: _Store, error: Exception, turn: _Turn) -> None:
        """Log an error that is to be ignored, keep the first other one."""
        turn.taken = False
        if store.ignores_errors:
            name = store.output.plugin_id
            store.errors.log(self.log, logging.ERROR, "ignore emit error in %s: %r", name, error)
        elif turn.failure is None:
            turn.failure = error

    def _copied(self, batch: Batch, store: _Store) -> Batch:
        """What a store gets: the batch, a copy of it, or one with an id of its own."""
        if self._copy is not None:
            one = self._copy
            made = Batch.of([(time, one(record)) for time, record in batch.events()])
            made.ack = batch.ack
        elif batch.id is None or store is self._stores[0]:
            return batch
        else:
            made = batch.with_ack(batch.ack)
        if batch.id is not None:
            number = self._stores.index(store)
            made.id = derived_id(batch.id, b"copy %d" % number) if number else batch.id
        return made

    def stats(self) -> dict[str, Any]:
        """Errors that were ignored, by store."""
        return {"ignored": {store.output.plugin_id: store.errors.count for store in self._stores}}
