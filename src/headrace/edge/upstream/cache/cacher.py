"""The part of a visit that looks into the cache, and what becomes of an answer.

look -> HIT: served from the file | EXPIRED, MISS, BYPASS: the upstream is asked -> 304: REVALIDATED
an upstream that fails while an old answer is there -> STALE; one that is being asked already -> UPDATING
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.core.http1.parse import parse_response_head
from headrace.edge import log, phases
from headrace.edge.ranges import http_time, part_head, requested_ranges, tag_matches
from headrace.edge.subrequest import Subrequest
from headrace.edge.upstream.answer import Orders, take_head
from headrace.edge.upstream.cache.entry import Entry, EntryWriter, rewrite_entry
from headrace.edge.upstream.cache.fresh import Lifetime, lifetime_of
from headrace.edge.upstream.service import Unroutable
from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.core.http1.events import ResponseHead
    from headrace.edge.request import Request
    from headrace.edge.upstream.cache.zone import Zone
    from headrace.edge.upstream.visit import Visit

PIECE: Final = 65536
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
    stale: frozenset[str] = frozenset()
    min_uses: int = 1
    lock: bool = False
    lock_timeout: float = 5.0
    lock_age: float = 5.0
    revalidate: bool = False
    background: bool = False
    convert_head: bool = True
    name: Value | None = None
    """The name of the zone, where it comes from variables; `zones` has them all."""
    zones: dict[str, Zone] = field(default_factory=dict)


def open_cache(visit: Visit) -> Cacher | None:
    """The cache for a request, None when it has none. Raises Unroutable for a zone that there is not."""
    settings, request = visit.settings.cache, visit.request
    if settings is None or request.method not in settings.methods:
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
    return Cacher(visit, settings, zone, key)


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
        self.fetches = False
        self.updates = False
        self._life = Lifetime()
        self._varied: tuple[str, str] | None = None
        """What the entry with the name of the key varies by, and its variant."""

    async def look(self) -> int | None:
        """Answer from the cache; None when the upstream has to be asked."""
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
        if stale and settings.background and self.visit.request.parent is None:
            self.updates = False
            self._update_behind()
            return await self.serve(b"STALE")
        state.cache_status = b"EXPIRED"
        return None

    def _update_behind(self) -> None:
        """Ask the upstream in a request of its own, whose answer goes to the cache only."""
        parent = self.visit.request
        request = Subrequest(parent, parent.uri, parent.args, method=parent.method, bare=True)
        request.location = parent.location
        request.copy_vars(parent)
        task = asyncio.get_running_loop().create_task(self._behind(request))
        _background.add(task)
        task.add_done_callback(_background.discard)

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
        ignored = self.visit.settings.ignored
        life = lifetime_of(head, ignored, {**self.settings.valid, 304: self._seconds(entry.head.status)}, time.time())
        if life.valid:
            meta = {**entry.meta, "valid": life.valid}
            raw = _merged(entry.head, head)
            try:
                self.zone.added(self.digest, rewrite_entry(entry, meta, raw, self.zone.temp))
            except OSError as error:
                self._failed(error)
        return await self.serve(b"REVALIDATED")

    def _seconds(self, status: int) -> float:
        return self.settings.valid.get(status, self.settings.valid.get(0, 0.0))

    def begin(self, head: ResponseHead) -> bool:
        """Begin to keep an answer; False when it may not be kept."""
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
        }
        try:
            self.writer = EntryWriter(self.zone.temp, meta, _kept(head))
        except OSError as error:
            self._failed(error)
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
        take_head(request, entry.head, visit.settings, Orders(), entry.size)
        set_modified(request, entry.head)
        size = entry.size
        pieces = None
        if request.status == 200 and (entry.head.header(b"accept-ranges") or b"").lower() == b"bytes":
            request.headers_out.remove(b"Accept-Ranges")
            tag = entry.head.header(b"etag")
            pieces = requested_ranges(request, size, int(request.last_modified or -1), tag)
            request.allow_ranges = (size, pieces if pieces is None or pieces else [])
            if pieces is not None and not pieces:
                request.content_length, request.range_refused = None, True
                return 416
        request.send_header()
        if request.header_only:
            return phases.OK
        if request.status != 206:
            pieces = None
        fd = entry.take_fd()
        request.on_cleanup(lambda: os.close(fd))
        for start, end in pieces if pieces is not None else [(0, size)]:
            if request.boundary:
                request.output(part_head(request, request.boundary, start, end))
            await self._send(fd, entry.body + start, entry.body + end)
        if request.boundary:
            request.output(b"\r\n--%b--\r\n" % request.boundary)
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


def set_modified(request: Request, head: ResponseHead) -> None:
    """Let conditions of the client count: the gateway answers them for what it keeps."""
    text = head.header(b"last-modified")
    at = http_time(text) if text is not None else None
    if at is not None and head.status == 200:
        request.last_modified = at
        request.headers_out.remove(b"Last-Modified")
        return
    wanted = request.header_in(b"if-none-match") if head.status == 200 else None
    if wanted is not None and request.header_in(b"if-modified-since") is None:
        tag = head.header(b"etag")
        if tag is not None and tag_matches(wanted, tag, weak=True):
            request.status, request.content_length, request.reason = 304, None, b""


def variant_of(request: Request, vary: str) -> str:
    """What distinguishes the request for an answer that varies by these fields."""
    parts = []
    for name in sorted({word.strip().lower() for word in vary.split(",")}):
        value = request.header_in(name.encode("latin-1")) or b""
        parts.append(name.encode() + b":" + b",".join(word.strip() for word in value.split(b",") if word.strip()))
    return hashlib.md5(b"\n".join(parts), usedforsecurity=False).hexdigest()


def _kept(head: ResponseHead) -> bytes:
    """The head as it is stored: framing belongs to the connection that it came on."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason)]
    skip = (b"transfer-encoding", b"connection", b"keep-alive", b"content-length")
    lines += [b"%b: %b\r\n" % field for field in head.headers() if field[0].lower() not in skip]
    return b"".join((*lines, b"\r\n"))


def _merged(old: ResponseHead, new: ResponseHead) -> bytes:
    """The stored head with the fields that a 304 renews (RFC 9111 3.2)."""
    renewed = {name.lower() for name, _ in new.headers()} & {b"date", b"expires", b"cache-control", b"etag", b"vary"}
    fields = [field for field in old.headers() if field[0].lower() not in renewed]
    fields += [field for field in new.headers() if field[0].lower() in renewed]
    text = b"".join(b"%b: %b\r\n" % field for field in fields)
    return _kept(parse_response_head(b"HTTP/1.1 %d %b\r\n%b\r\n" % (old.status, old.reason, text), b"GET"))
