"""The part of a visit that looks into the cache, and what becomes of an answer.

look -> HIT: served from the file | EXPIRED, MISS, BYPASS: the upstream is asked -> 304: REVALIDATED
an upstream that fails while an old answer is there -> STALE; one that is being asked already -> UPDATING
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.parse import parse_response_head
from headrace.edge import log, phases
from headrace.edge.subrequest import Subrequest
from headrace.edge.upstream.answer import orders_of, take_head, upstream_ranges
from headrace.edge.upstream.cache.entry import Entry, EntryWriter, rewrite_entry
from headrace.edge.upstream.cache.fresh import Lifetime, lifetime_of
from headrace.edge.upstream.cache.heads import kept_head, merged_head, set_modified, variant_of
from headrace.edge.upstream.cache.purge import purge
from headrace.edge.upstream.service import Unroutable
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request
    from headrace.edge.upstream.cache.zone import Zone
    from headrace.edge.upstream.visit import Visit

PIECE: Final = 65536
_FROM: Final = re.compile(rb"bytes=[ ]*([0-9]*)[ ]*-", re.IGNORECASE)
_background: Final[set[asyncio.Task[None]]] = set()


@dataclass(slots=True)
class CacheSettings:
    """The ..._cache_... directives in force. valid: seconds by status, 0 for any; stale: words of use_stale."""

    zone: Zone | None
    key: Value | None
    valid: dict[int, float]
    methods: frozenset[bytes]
    bypass: tuple[Value, ...] = ()
    no_cache: tuple[Value, ...] = ()
    purge: tuple[Value, ...] = ()
    stale: frozenset[str] = frozenset()
    min_uses: int = 1
    lock: bool = False
    lock_timeout: float = 5.0
    lock_age: float = 5.0
    revalidate: bool = False
    background: bool = False
    convert_head: bool = True
    max_offset: int | None = None
    """Where a range may begin; one that begins later goes to the upstream, and is not kept."""
    name: Value | None = None
    """The name of the zone, where it comes from variables; `zones` has them all."""
    zones: dict[str, Zone] = field(default_factory=dict)


def open_cache(visit: Visit) -> Cacher | None:
    """The cache for a request, None when it has none. Raises Unroutable for a zone that there is not."""
    settings, request = visit.settings.cache, visit.request
    if settings is None:
        return None
    purges = bool(settings.purge) and is_set(settings.purge, request)
    if not purges and request.method not in settings.methods:
        return None
    zone = settings.zone
    if zone is None:
        name = evaluate(settings.name or b"", request).decode("utf-8", "surrogateescape")
        if name in ("", "off"):
            return None
        zone = settings.zones.get(name)
        if zone is None:
            raise Unroutable(f'cache "{name}" not found'.encode("utf-8", "surrogateescape"), 500)
    key = visit.cache_key
    if key is None:
        key = (
            evaluate(settings.key, request)
            if settings.key is not None
            else visit.service.cache_key(request, visit.route)
        )
    made = Cacher(visit, settings, zone, key)
    made.purges = purges
    return made


def is_set(values: tuple[Value, ...], request: Request) -> bool:
    """One of the values is not empty and not 0."""
    return any(evaluate(value, request) not in (b"", b"0") for value in values)


class Cacher:
    """See the module. entry: the old answer, if there is one; digest: of the name to store under."""

    def __init__(self, visit: Visit, settings: CacheSettings, zone: Zone, key: bytes) -> None:
        self.visit = visit
        self.settings = settings
        self.zone = zone
        self.key = key
        self.main = self.digest = self.zone.digest(key)
        self.entry: Entry | None = None
        self.writer: EntryWriter | None = None
        self.store = True
        self.purges = False
        self.fetches = False
        self.updates = False
        self._life = Lifetime()
        self._varied: tuple[str, str] | None = None
        """What the entry with the name of the key varies by, and its variant."""

    async def look(self) -> int | None:
        """Answer from the cache; None when the upstream has to be asked."""
        return await purge(self.zone, self.key) if self.purges else await self._look()

    async def _look(self) -> int | None:
        request, settings, state = self.visit.request, self.settings, self.visit.state
        if is_set(settings.bypass, request):
            state.cache_status = b"BYPASS"
            return None
        if self.visit.behind:
            self._find()
            return None
        waited = False
        while True:
            self._find()
            entry = self.entry
            if entry is not None and entry.valid > time.time():
                return await self.serve(b"HIT")
            if entry is not None:
                return await self._expired(entry)
            state.cache_status = b"MISS"
            if self._too_far():
                self.store = False
                return None
            if self.zone.used(self.main) < settings.min_uses:
                self.store = False
                return None
            if not settings.lock or waited:
                if waited and self.main in self.zone.fetching:
                    self.store = False
                return None
            other = self.zone.fetching.get(self.main)
            if other is None:
                self.zone.fetching[self.main] = asyncio.get_running_loop().create_future()
                self.fetches = True
                return None
            seconds = min(settings.lock_timeout, settings.lock_age)
            await asyncio.wait((other,), timeout=seconds)
            waited = not other.done()

    def _too_far(self) -> bool:
        """A range is asked for that begins behind ..._cache_max_range_offset."""
        most, text = self.settings.max_offset, self.visit.request.header_in(b"range")
        if most is None or text is None:
            return False
        match = _FROM.match(text)
        return not most or (match is not None and (not match[1] or int(match[1]) >= most))

    def _find(self) -> None:
        request = self.visit.request
        entry = self.zone.find(self.main, self.key)
        self.digest = self.main
        self._varied = None if entry is None else (str(entry.meta.get("vary", "")), str(entry.meta.get("variant", "")))
        if entry is not None and entry.meta.get("vary"):
            variant = variant_of(request, entry.meta["vary"])
            if variant != entry.meta.get("variant"):
                entry.close()
                self.digest = self.zone.digest(self.key + b"\0" + variant.encode())
                entry = self.zone.find(self.digest, self.key)
        self.entry = entry

    async def _expired(self, entry: Entry) -> int | None:
        settings, state, zone = self.settings, self.visit.state, self.zone
        late = time.time() - entry.valid
        stale = "updating" in settings.stale or late < float(entry.meta.get("while_updating", 0))
        if stale and self.digest in zone.updating:
            return await self.serve(b"UPDATING")
        zone.updating.add(self.digest)
        self.updates = True
        if stale and settings.background:
            self.updates = False
            update = self._update_behind()
            code = await self.serve(b"STALE")
            await self._hold(update)
            return code
        state.cache_status = b"EXPIRED"
        return None

    async def _hold(self, update: asyncio.Task[None]) -> None:
        """A client that takes the end of the connection for the end of the request finds the new answer after it."""
        request = self.visit.request
        exchange = request.exchange
        if request.parent is None and exchange.head.version < 20 and not exchange.keep_alive and not request.chunked:
            exchange.on_abort = None
            exchange.abort_on_eof = False
            await request.flush()
            await asyncio.wait((update,))

    def _update_behind(self) -> asyncio.Task[None]:
        """Ask the upstream in a request of its own, whose answer goes to the cache only."""
        parent = self.visit.request
        request = Subrequest(parent, parent.uri, parent.args, method=parent.method, bare=True)
        request.location = parent.location
        request.copy_vars(parent)
        request.captures = parent.captures
        task = asyncio.get_running_loop().create_task(self._behind(request))
        _background.add(task)
        task.add_done_callback(_background.discard)
        return task

    async def _behind(self, request: Subrequest) -> None:
        from headrace.edge.upstream.visit import Visit  # noqa: PLC0415 - visit uses this module

        visit = Visit(request, self.visit.service)
        visit.behind = True
        visit.cache_key = self.key
        try:
            await visit.run()
        finally:
            self.zone.updating.discard(self.digest)
            if not request.finished:
                request.abandon()

    # what the upstream is asked and what it answers

    def condition(self, name: bytes) -> bytes:
        """The value of If-Modified-Since and If-None-Match for the old answer."""
        if self.entry is None or not self.settings.revalidate or self.entry.head.status not in (200, 206):
            return b""
        return self.entry.head.header(name) or b""

    def may_use_stale(self, kind: str) -> bool:
        """The old answer may be given for this kind of failure."""
        if self.entry is None:
            return False
        if kind in self.settings.stale:
            return True
        late = time.time() - self.entry.valid
        return not kind.startswith("http_") and late < float(self.entry.meta.get("if_error", 0))

    async def revalidated(self, head: ResponseHead) -> int | None:
        """The upstream says that the old answer still holds: keep it for as long as it says now."""
        entry = self.entry
        assert entry is not None
        raw = merged_head(entry.head, head)
        merged = parse_response_head(raw, b"GET")
        life = lifetime_of(merged, self.visit.settings.ignored, self.settings.valid, time.time())
        if life.valid:
            meta = {**entry.meta, "valid": life.valid}
            try:
                self.zone.added(self.digest, rewrite_entry(entry, meta, raw, self.zone.temp))
            except OSError as error:
                self._failed(error)
        return await self.serve(b"REVALIDATED")

    def keep_error(self, head: ResponseHead) -> None:
        """An answer that error_page replaces: what is kept is that it was an error."""
        if self.begin(head, error=head.status):
            self.keep()

    def begin(self, head: ResponseHead, *, error: int = 0) -> bool:
        """Begin to keep an answer; False when it may not be kept. error: the status that is to be made of it."""
        visit, settings = self.visit, self.settings
        if not self.store or is_set(settings.no_cache, visit.request):
            return False
        life = self._life = lifetime_of(head, visit.settings.ignored, settings.valid, time.time())
        if not life.valid:
            return False
        vary = head.header(b"vary") if b"vary" not in visit.settings.ignored else None
        variant = variant_of(visit.request, vary.decode("latin-1")) if vary else ""
        shown = vary.decode("latin-1") if vary else ""
        other = self._varied is not None and self._varied[0] == shown and self._varied[1] != variant
        # The first variant has the name of the key; an answer that varies otherwise takes its place.
        name = self.zone.digest(self.key + b"\0" + variant.encode()) if vary and other else self.main
        if name != self.digest and self.updates:
            self.zone.updating.discard(self.digest)
        self.digest = name
        meta: dict[str, Any] = {
            "key": self.key.hex(),
            "valid": life.valid,
            "while_updating": life.while_updating,
            "if_error": life.if_error,
            "vary": shown,
            "variant": variant,
            "error": error,
        }
        try:
            self.writer = EntryWriter(self.zone.temp, meta, kept_head(head))
        except OSError as failure:
            self._failed(failure)
            return False
        return True

    def write(self, data: bytes) -> None:
        """A piece of the body."""
        if self.writer is not None:
            try:
                self.writer.write(data)
            except OSError as error:
                self._failed(error)
                self.drop()

    def keep(self) -> None:
        """The answer is whole."""
        writer = self.writer
        if writer is not None:
            try:
                writer.keep(self.zone.file_of(self.digest))
                self.zone.added(self.digest, writer.size)
            except OSError as error:
                self._failed(error)
            self.drop()

    def drop(self) -> None:
        """Be done with what is being written."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.drop()

    def _failed(self, error: OSError) -> None:
        self.visit.log(log.CRIT, f'cache "{self.zone.name}" failed ({error.errno}: {error.strerror})')

    def end(self) -> None:
        """The visit is over: let those go on who wait for the entry."""
        self.drop()
        if self.entry is not None:
            self.entry.close()
        if self.fetches:
            self.fetches = False
            future = self.zone.fetching.pop(self.main, None)
            if future is not None and not future.done():
                future.set_result(None)
        if self.updates:
            self.zone.updating.discard(self.digest)

    # from the file

    async def serve(self, status: bytes) -> int:
        """Answer with the entry."""
        entry, request, visit = self.entry, self.visit.request, self.visit
        assert entry is not None
        visit.state.cache_status = status
        visit.state.head = entry.head
        if visit.behind:
            return phases.DONE
        if entry.meta.get("error"):
            return int(entry.meta["error"])
        take_head(request, entry.head, visit.settings, orders_of(entry.head, visit.settings), entry.size)
        set_modified(request, entry.head)
        size = entry.size
        if not upstream_ranges(request, entry.head, size, force=visit.settings.force_ranges):
            return 416
        request.send_header()
        if request.header_only:
            return phases.OK
        parts = request.parts
        fd = entry.take_fd()
        request.on_cleanup(lambda: os.close(fd))
        for head, start, end in parts or ((b"", 0, size),):
            if head:
                request.output(head)
            await self._send(fd, entry.body + start, entry.body + end)
        if parts is not None and parts.tail:
            request.output(parts.tail)
        return phases.OK

    async def _send(self, fd: int, at: int, end: int) -> None:
        request = self.visit.request
        if not request.body_filters and end - at > PIECE and request.parent is None:
            request.output_file(fd, at, end - at)
            return
        while at < end:
            data = os.pread(fd, min(PIECE, end - at), at)
            if not data:
                return
            at += len(data)
            request.output(data)
            if at < end:
                await request.flush()
