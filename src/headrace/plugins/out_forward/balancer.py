"""Which node a chunk goes to: by weight, with standby nodes in the place of lost ones. No I/O.

- The active nodes are the regular ones; when some of them are down, so many standby nodes join, in the order of
  the configuration, as their lost weight needs (as in Fluentd).
- Turns go by smooth weighted round robin: over any sum of the weights each active node has as many turns as its
  weight, spread evenly. Fluentd shuffles an array of as many entries as the weights add up to; the shares are
  the same, and nothing grows with the numbers that are configured.
- `order` gives every node that a delivery may try, each once: the one whose turn it is, the other sound ones, and
  last those with which connections have failed lately. Nodes that are detached are not among them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.plugins.out_forward.node import Node


class Balancer:
    """The nodes of one output. randint(limit): a random number from 0 to below limit, for the first turn."""

    def __init__(self, randint: Callable[[int], int] = random.randrange) -> None:
        self.nodes: tuple[Node, ...] = ()
        self.active: list[Node] = []
        self._randint = randint
        self._credit: dict[Node, int] = {}
        self._stale = False

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Take another list of nodes."""
        self.nodes = tuple(nodes)
        self._rebuild()
        # Many senders that start together must not all begin with the first node.
        for _ in range(self._randint(len(self.active)) if self.active else 0):
            self._turn(self.active)

    def changed(self) -> None:
        """Some node is up or down: think again before the next turn."""
        self._stale = True

    def _rebuild(self) -> None:
        self._stale = False
        usable = [node for node in self.nodes if node.weight > 0]
        active = [node for node in usable if not node.standby]
        lost = sum(node.weight for node in active if node.down)
        for node in usable:
            if lost <= 0:
                break
            if node.standby and not node.down:
                active.append(node)
                lost -= node.weight
        self.active = active
        self._credit = {node: self._credit.get(node, 0) for node in active}

    def order(self, now: float) -> Iterator[Node]:
        """Yield the nodes to try for one chunk, each once. now: the clock, in seconds."""
        if self._stale:
            self._rebuild()
        tried: set[Node] = set()
        while sound := [
            node
            for node in self.active
            if node.available and node not in tried and not node.held(now) and not node.gone
        ]:
            node = self._turn(sound)
            tried.add(node)
            yield node
            if self._stale:
                self._rebuild()
        for node in list(self.active):
            if node.available and node not in tried and not node.gone:
                yield node

    def _turn(self, among: Sequence[Node]) -> Node:
        credit = self._credit
        total = 0
        best = among[0]
        for node in among:
            total += node.weight
            credit[node] += node.weight
            if credit[node] > credit[best]:
                best = node
        credit[best] -= total
        return best
