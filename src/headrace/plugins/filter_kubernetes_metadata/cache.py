"""A cache whose least recently used entries go, and old ones too."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V")


class Cache(Generic[V]):
    """At most `size` entries, each for `ttl` seconds by `now`; ttl None: for ever."""

    def __init__(self, size: int, ttl: float | None, now: Callable[[], float]) -> None:
        self._size = size
        self._ttl = ttl
        self._now = now
        self._entries: OrderedDict[str, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> V | None:
        """The value, None without one or with one that is too old."""
        found = self._entries.get(key)
        if found is None:
            return None
        if self._ttl is not None and self._now() - found[0] >= self._ttl:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return found[1]

    def put(self, key: str, value: V) -> None:
        """Remember a value; the least recently used one goes when there is no room."""
        self._entries[key] = (self._now(), value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
