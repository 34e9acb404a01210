"""Looking at live events: what enters or leaves a component, copied for whoever asks, while they ask.

Nobody pays for it but who is looked at: the methods of those plugins are replaced when a tap opens, and put back when
the last one closes. A tap never holds the pipeline back: it copies at most `RATE` events a second, keeps at most
`ROOM` bytes for its reader, and counts what it leaves out. Events are copied packed, exactly as they are.

What is looked at: of a source what it emits; of a filter what comes to it and what it lets pass; of an output what
comes to it, and what it has delivered (chunks, once `write` returned; `try_write`: once they are sent).
"""

from __future__ import annotations

import asyncio
import fnmatch
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error
from headrace.pipeline.event import Batch, pack_event, pack_value, unpacker
from headrace.pipeline.plugin import Filter, Output, Source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Plugin
    from headrace.pipeline.router import Router

RATE: Final = 1000
"""Events a second that a tap copies in each worker."""
ROOM: Final = 1 << 20
"""Bytes that wait for a reader, at the most."""
TAPS: Final = 8
"""Taps that may be open at once in a worker."""
INTERVAL: Final = 1.0
"""Seconds between two counts of what went by."""
IN: Final = "in"
OUT: Final = "out"
_SHOWN: Final = 64 << 10  # bytes of text that is no event


class Tap:
    """One reader's view. seen, sent, dropped: events; closed: its reader is gone."""

    def __init__(self, pattern: str, now: Callable[[], float], *, counts_only: bool = False) -> None:
        self.pattern = pattern
        self.seen = 0
        self.sent = 0
        self.dropped = 0
        self.points: list[tuple[Hook, str]] = []
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._counts_only = counts_only
        self._now = now
        self._tokens = float(RATE)
        self._refilled = now()
        self._frames: list[bytes] = []
        self._size = 0
        self._ready = asyncio.Event()

    def watch(self, hook: Hook, side: str) -> None:
        """Look at one side of a plugin."""
        self.points.append((hook, side))
        self._counts[hook.plugin.plugin_id, side] = [0, 0]

    def offer(self, plugin: Plugin, side: str, tag: str, batch: Batch) -> None:
        """Copy of a batch what there is room for; count it."""
        take = self._room(plugin, side, batch.count)
        if take:
            self._keep(plugin, side, tag, batch.count, _entries(batch, take))

    def offer_chunk(self, plugin: Plugin, side: str, chunk: Chunk, *, packed: bool, wall_ns: int) -> None:
        """Likewise of a chunk; one that was formatted is shown as text."""
        take = self._room(plugin, side, chunk.count)
        if not take:
            return
        try:
            data = chunk.read()
        except (OSError, ValueError):
            self.dropped += chunk.count
            return
        if packed:
            entries = _split(data, take)
        else:
            text = data[:_SHOWN].decode("utf-8", "surrogateescape")
            entries = [pack_event(wall_ns, {"text": text})]
        self._keep(plugin, side, chunk.tag or "", chunk.count, entries, stand_for=None if packed else chunk.count)

    def _room(self, plugin: Plugin, side: str, count: int) -> int:
        """How many events of a batch may be copied."""
        counts = self._counts[plugin.plugin_id, side]
        counts[0] += count
        counts[1] += 1
        self.seen += count
        if self._counts_only:
            return 0
        now = self._now()
        self._tokens = min(self._tokens + (now - self._refilled) * RATE, float(RATE))
        self._refilled = now
        take = min(count, int(self._tokens)) if self._size < ROOM else 0
        if not take:
            self.dropped += count
        self._tokens -= take
        return take

    def _keep(
        self,
        plugin: Plugin,
        side: str,
        tag: str,
        count: int,
        entries: Sequence[bytes],
        *,
        stand_for: int | None = None,
    ) -> None:
        """Keep entries for the reader. count: events they are taken from; stand_for: how many a text stands for."""
        kept: list[bytes] = []
        for entry in entries:
            if self._size + len(entry) > ROOM:
                break
            kept.append(entry)
            self._size += len(entry)
        shown = len(kept) if stand_for is None or not kept else stand_for
        self.dropped += count - shown
        self.sent += shown
        if kept:
            self._frames.append(pack_value([plugin.plugin_id, side, tag, kept]))
            self._ready.set()

    async def next(self) -> bytes:
        """What the reader gets next: events at once, counts at the latest after INTERVAL seconds."""
        try:
            async with asyncio.timeout(INTERVAL):
                await self._ready.wait()
        except TimeoutError:
            pass
        frames, self._frames, self._size = self._frames, [], 0
        self._ready.clear()
        return b"".join([*frames, self.figures()])

    def figures(self) -> bytes:
        """Counts until now, as a frame."""
        points = [[name, side, *counts] for (name, side), counts in self._counts.items()]
        return pack_value({"seen": self.seen, "sent": self.sent, "dropped": self.dropped, "points": points})

    def close(self) -> None:
        """Let go of the plugins."""
        for hook, side in self.points:
            hook.remove(self, side)
        self.points.clear()


def _entries(batch: Batch, take: int) -> Sequence[bytes]:
    if not batch.is_unpacked:
        return _split(batch.packed(), take)
    return [_packed(time, record) for time, record in batch.events()[:take]]


def _packed(time: int, record: Any) -> bytes:
    try:
        return pack_event(time, record)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return pack_event(time, {"unpackable": type(record).__name__})


def _split(data: bytes, take: int) -> list[bytes]:
    """The first entries of a packed stream; it is not decoded."""
    found: list[bytes] = []
    stream = unpacker(data)
    start = 0
    try:
        for _ in range(take):
            stream.skip()
            end = stream.tell()
            found.append(data[start:end])
            start = end
    except Exception:  # noqa: BLE001 - the end, or what is no event: whoever takes the batch will say so
        return found
    return found


class _TapRouter:
    """The router of a source that is looked at: all it does is the router's, but `emit` is seen."""

    def __init__(self, router: Router, hook: Hook) -> None:
        self._router = router
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._router, name)

    def emit(self, tag: str, batch: Batch) -> Awaitable[None] | None:
        """Show the batch, and send it on its way."""
        self._hook.show(OUT, tag, batch)
        return self._router.emit(tag, batch)


class Hook:
    """What is replaced in one plugin while anybody looks at it."""

    def __init__(self, plugin: Plugin, gone: Callable[[Hook], None]) -> None:
        self.plugin = plugin
        self.taps: dict[str, list[Tap]] = {IN: [], OUT: []}
        self._gone = gone
        self._saved: dict[str, Any] = {}
        self._router: Router | None = None

    def add(self, tap: Tap, side: str) -> None:
        """Show a side to one more."""
        self.taps[side].append(tap)
        tap.watch(self, side)

    def remove(self, tap: Tap, side: str) -> None:
        """Show it to one less; the last one puts everything back."""
        self.taps[side].remove(tap)
        if not (self.taps[IN] or self.taps[OUT]):
            self._gone(self)

    def show(self, side: str, tag: str, batch: Batch) -> None:
        """Offer a batch to everybody who looks at this side."""
        for tap in self.taps[side]:
            tap.offer(self.plugin, side, tag, batch)

    def install(self) -> None:
        """Replace the methods that events go through."""
        plugin = self.plugin
        if isinstance(plugin, Source):
            self._router = plugin.router
            plugin.router = _TapRouter(plugin.router, self)  # type: ignore[assignment] # it stands in for one
            plugin.rerouted()
        elif isinstance(plugin, Filter):
            name = "filter_later" if plugin.waits else "filter_batch"
            self._replace(name, self._filtering(getattr(plugin, name)))
        elif isinstance(plugin, Output):
            primary = plugin.runner is None or plugin.runner.output is plugin
            if primary:
                self._replace("emit", self._emitting(plugin.emit, delivers=plugin.runner is None))
            if plugin.runner is not None:
                for name in ("write", "try_write"):
                    self._replace(name, self._writing(getattr(plugin, name), plugin, before=not primary))

    def uninstall(self) -> None:
        """Put back what was there."""
        plugin = self.plugin
        for name, before in self._saved.items():
            if before is None:
                del plugin.__dict__[name]
            else:
                plugin.__dict__[name] = before
        self._saved.clear()
        if self._router is not None and isinstance(plugin, Source):
            plugin.router = self._router
            plugin.rerouted()

    def _replace(self, name: str, method: Any) -> None:
        self._saved[name] = self.plugin.__dict__.get(name)
        self.plugin.__dict__[name] = method

    def _filtering(self, method: Callable[[str, Batch], Any]) -> Callable[[str, Batch], Any]:
        def tapped(tag: str, batch: Batch) -> Any:
            self.show(IN, tag, batch)
            result = method(tag, batch)
            if not self.taps[OUT]:
                return result
            if isinstance(result, Batch):
                self._passed(tag, result)
                return result
            return self._passed_later(tag, result)

        return tapped

    def _passed(self, tag: str, batch: Batch) -> None:
        if batch.count:
            self.show(OUT, tag, batch)

    async def _passed_later(self, tag: str, result: Awaitable[Batch]) -> Batch:
        batch = await result
        self._passed(tag, batch)
        return batch

    def _emitting(self, method: Callable[[str, Batch], Any], *, delivers: bool) -> Callable[[str, Batch], Any]:
        def tapped(tag: str, batch: Batch) -> Any:
            self.show(IN, tag, batch)
            pending = method(tag, batch)
            if not delivers or not self.taps[OUT]:
                return pending
            if pending is None:
                self.show(OUT, tag, batch)
                return None
            return self._delivered_later(tag, batch, pending)

        return tapped

    async def _delivered_later(self, tag: str, batch: Batch, pending: Awaitable[None]) -> None:
        await pending
        self.show(OUT, tag, batch)

    def _writing(
        self, method: Callable[[Chunk, Lane], Awaitable[None]], plugin: Output, *, before: bool
    ) -> Callable[[Chunk, Lane], Awaitable[None]]:
        assert plugin.runner is not None
        packed = plugin.runner.section.holds_packed()
        clock = plugin.context.clock

        def show(side: str, chunk: Chunk) -> None:
            for tap in self.taps[side]:
                tap.offer_chunk(plugin, side, chunk, packed=packed, wall_ns=clock.wall_ns())

        async def tapped(chunk: Chunk, lane: Lane) -> None:
            if before:
                show(IN, chunk)
            await method(chunk, lane)
            show(OUT, chunk)

        return tapped


class Taps:
    """The taps of one worker's pipeline."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._hooks: dict[Plugin, Hook] = {}
        self._open: list[Tap] = []

    def open(self, pattern: str, side: str | None = None, *, counts_only: bool = False) -> Tap:
        """Look at all plugins whose @id or type fits a glob.

        side: "in", "out", or None: what leaves sources and filters, and what comes to outputs. Raises Error when
        nothing fits, or too many look already.
        """
        self._open = [tap for tap in self._open if tap.points]
        if len(self._open) >= TAPS:
            raise Error(f"{TAPS} taps are open already", kind="busy")
        chosen = list(_points(self._context.plugins, pattern, side))
        if not chosen:
            names = ", ".join(plugin.plugin_id for plugin in self._context.plugins if _sides(plugin))
            what = {None: "", IN: " whose inputs can be seen", OUT: " whose outputs can be seen"}[side]
            raise Error(f'no component{what} fits "{pattern}"; there are: {names}', kind="not_found")
        tap = Tap(pattern, self._context.clock.now, counts_only=counts_only)
        fresh = [plugin for plugin, _side in chosen if plugin not in self._hooks]
        for plugin, which in chosen:
            hook = self._hooks.get(plugin) or Hook(plugin, self._gone)
            self._hooks[plugin] = hook
            hook.add(tap, which)
        for plugin in dict.fromkeys(fresh):
            self._hooks[plugin].install()
        self._reroute()
        self._open.append(tap)
        return tap

    def _gone(self, hook: Hook) -> None:
        hook.uninstall()
        del self._hooks[hook.plugin]
        self._reroute()

    def _reroute(self) -> None:
        for router in self._context.labels.values():
            router.reroute()


def _sides(plugin: Plugin) -> tuple[str, ...]:
    if isinstance(plugin, Source):
        return (OUT,)
    return (IN, OUT) if isinstance(plugin, (Filter, Output)) else ()


def _points(plugins: Iterable[Plugin], pattern: str, side: str | None) -> Iterable[tuple[Plugin, str]]:
    for plugin in plugins:
        sides = _sides(plugin)
        if sides and any(fnmatch.fnmatchcase(name, pattern) for name in (plugin.plugin_id, plugin.type_)):
            wanted = side or (IN if isinstance(plugin, Output) else OUT)
            if wanted in sides:
                yield plugin, wanted
