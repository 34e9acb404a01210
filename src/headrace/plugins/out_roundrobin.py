"""Output `roundrobin` (docs.fluentd.org, Output Plugins, roundrobin): each batch to one of its stores, by turns.

With weights a store gets its part of the batches, spread as evenly as the numbers let it (Fluentd shuffles them once).

A batch with an id (`Batch.id`) may come again, and then only the store that has it can leave it out. So its id gives
the store, in the same proportions; when that one has no room, the next one in the order takes it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import literal_of, raw_section
from headrace.errors import BufferOverflow, ConfError
from headrace.pipeline.plugin import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Batch

LARGEST: Final = 1000
"""The largest weight, when their common factor is taken out."""
_WEIGHT: Final = "weight"


class RoundRobinOutput(Output):
    """Gives batches to its stores by turns."""

    routes = True

    stores = raw_section(
        name="store", multi=True, required=True, doc="An output, and its weight: how many batches it gets, 1 by default"
    )

    def validate(self, problems: Problems) -> None:
        """Read the weights."""
        super().validate(problems)
        weights = [self._weight(store, problems) for store in self.stores]
        common = reduce(gcd, weights, 0)
        if not common:
            problems.error("every <store> has the weight 0", self.place)
            return
        self._weights = [weight // common for weight in weights]
        if max(self._weights) > LARGEST:
            problems.error(f"the weights differ by more than {LARGEST} to 1", self.place)

    @staticmethod
    def _weight(store: Directive, problems: Problems) -> int:
        for given in store.children(_WEIGHT):
            try:
                weight = int(str(literal_of(given)))
            except ValueError:
                weight = -1
            if weight < 0:
                problems.error('parameter "weight" must be a whole number, at least 0', given.place)
                return 0
            return weight
        return 1

    def provision(self, context: Context) -> None:
        """Make the stores, and the order of their turns."""
        self._outputs: list[Output] = []
        weights: list[int] = []
        for directive, weight in zip(self.stores, self._weights, strict=True):
            own = tuple(child for child in directive.block or () if child.name != _WEIGHT)
            output = context.make("output", replace(directive, block=own), router=self.router)
            if output is not None:
                self._outputs.append(output)
                weights.append(weight)
        self.passes_to = [router for output in self._outputs for router in output.passes_to]
        if not self._outputs:
            raise ConfError("no <store> can be used", self.place)
        self._turns = turns(weights) or [0]
        self._next = 0
        self.batches = [0] * len(self._outputs)

    def process(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Give a batch to the store whose turn it is; its error is that of the batch."""
        if batch.id is not None:
            return self._named(tag, batch, batch.id)
        which = self._turns[self._next]
        self._next = (self._next + 1) % len(self._turns)
        self.batches[which] += 1
        return self._outputs[which].emit(tag, batch)

    def _named(self, tag: str, batch: Batch, batch_id: bytes) -> Awaitable[None] | None:
        first = int.from_bytes(batch_id[:8], "big") % len(self._turns)
        order = dict.fromkeys(self._turns[first:] + self._turns[:first])
        failure: BufferOverflow | None = None
        for which in order:
            try:
                waiting = self._outputs[which].emit(tag, batch)
            except BufferOverflow as error:
                failure = failure or error
                continue
            self.batches[which] += 1
            return waiting
        assert failure is not None
        raise failure

    def stats(self) -> dict[str, Any]:
        """Batches, by store."""
        named = zip(self._outputs, self.batches, strict=True)
        return {"batches": {output.plugin_id: number for output, number in named}}


def turns(weights: list[int]) -> list[int]:
    """The order of one round: each store as often as its weight, as evenly spread as can be."""
    current = [0] * len(weights)
    total = sum(weights)
    order = []
    for _ in range(total):
        for index, weight in enumerate(weights):
            current[index] += weight
        best = max(range(len(weights)), key=current.__getitem__)
        current[best] -= total
        order.append(best)
    return order
