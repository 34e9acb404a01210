"""The Lua side of a gateway: one VM, its compiled chunks, and what ties it to a loop.

Life: built with the configuration; run_init() in the master (init_by_lua); after the fork attach() in each
worker, which runs init_worker_by_lua; begin_exit() when the worker is told to stop: pending timers fire once as
premature, idle cosockets close; exit() when its requests and timers have ended, or their time is over.

Budget. Lua runs in the worker's only thread, so a handler that never waits holds all other requests of the worker:
- a cosocket operation gives the loop a turn every lua_socket_turn_time (4 ms) when others have work, also in a loop
  whose peer answers so fast that it never waits; so does output past 32 KB;
- a handler that computes without end is ended with its worker: LuaJIT's count hook is not called in compiled code,
  so nothing inside the VM can stop it. The loop's heartbeat stops, and the master's watchdog replaces the worker;
  other workers do not notice.

Crossing. One call into Lua per run of a handler (run); what waits comes back by `done`. The entries of the VM are
called with integers and bytes only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.core import shared
from headrace.edge.log import DEBUG, ERR, ErrorLog
from headrace.edge.request import live
from headrace.errors import ConfError
from headrace.lua import loopfd
from headrace.lua.api.balancer import BalancerApi
from headrace.lua.api.emit import EmitApi
from headrace.lua.api.errlog import ErrlogApi
from headrace.lua.api.ocsp import OcspApi
from headrace.lua.api.pem import PemApi
from headrace.lua.api.pipes import PipesApi
from headrace.lua.api.process import ProcessApi
from headrace.lua.api.ssl import SslApi
from headrace.lua.api.threads import ThreadsApi
from headrace.lua.api.tls import TlsApi
from headrace.lua.api.variables import VariablesApi
from headrace.lua.paths import search_paths
from headrace.lua.sched import Scheduler
from headrace.lua.side import HttpSide
from headrace.lua.vm import VM

if TYPE_CHECKING:
    from headrace.core.openssl.settings import Settings as TlsSettings
    from headrace.errors import Place
    from headrace.lua.side import Part, Side

INIT: Final = 1
INIT_WORKER: Final = 2
REWRITE: Final = 3
ACCESS: Final = 4
CONTENT: Final = 5
LOG: Final = 6
EXIT_WORKER: Final = 8
SET: Final = 9
HEADER_FILTER: Final = 10
BODY_FILTER: Final = 11
SERVER_REWRITE: Final = 12
BALANCER: Final = 13
SSL_CERT: Final = 14
SSL_CLIENT_HELLO: Final = 15
SSL_SESSION_FETCH: Final = 16
SSL_SESSION_STORE: Final = 17
KEEP: Final = 32
HEAD: Final = 64
SENT: Final = 128
"""Phases and flags of the VM's run, as prelude/core.lua and sched.lua have them."""

_LOOK_AGAIN: Final = 0.01  # seconds until a worker that ends asks again whether timers run


@dataclass
class Overlay:
    """What a test puts under the VM: code (see lua.vm), and the functions that it calls."""

    code: bytes
    functions: Mapping[str, Callable[..., Any]]


@dataclass
class Settings:
    """What one VM is built with.

    prefix: the folder of the gateway. package_path, package_cpath: as the directives give them, None: not set.
    shared_dicts: bytes by name. capture_error_log: bytes of the error log kept for ngx.errlog.
    spin_time: seconds a cosocket tries a read again before it parks, 0: never. turn_time: seconds after which a
    handler that never waits gives the loop a turn. overlay: of a test. error_log: for code that runs without a request.
    """

    prefix: str = "."
    package_path: str | None = None
    package_cpath: str | None = None
    spin_time: float = 50e-6
    turn_time: float = 4e-3
    max_pending_timers: int = 1024
    max_running_timers: int = 256
    regex_cache_max_entries: int = 1024
    regex_match_limit: int = 0
    worker_thread_vms: int = 10
    capture_error_log: int = 0
    shared_dicts: Mapping[str, int] = field(default_factory=dict)
    configure: str = ""
    error_log: ErrorLog = field(default_factory=lambda: ErrorLog(()))
    overlay: Overlay | None = None


@dataclass
class Chunk:
    """Lua code with the settings of its place. failure: why it could not be compiled; status: what is answered then."""

    ref: int
    name: bytes
    path: str | None = None
    failure: bytes | None = None
    status: int = 500

    @property
    def said(self) -> bytes:
        """What the error log says of a failure."""
        kind = b'external Lua file "%b"' % self.name[1:] if self.path is not None else b"inlined Lua code"
        return b"failed to load %b: %b" % (kind, self.failure or b"")


class Runtime:
    """See the module. requests: live requests by handle (tests give their own). side: whom the VM serves."""

    def __init__(
        self,
        settings: Settings,
        requests: Mapping[int, Any] = live,
        side: Callable[[Mapping[int, Any], TlsApi], Side] = HttpSide,
    ) -> None:
        self.settings = settings
        self.scheduler = Scheduler()
        self.tls_settings: list[TlsSettings] = []
        self.process = ProcessApi(requests, settings.error_log)
        tls = TlsApi(self.tls_settings)
        self.threads = ThreadsApi(
            [settings.prefix, settings.package_path or "", settings.package_cpath or ""], settings.worker_thread_vms
        )
        self.balancer = BalancerApi(requests)
        self.pipes = PipesApi(self.process)
        self.ssl = SslApi(requests)
        self.process.handshakes = self.ssl.handshakes
        self.errlog = ErrlogApi(settings.capture_error_log)
        self.side: Side = side(requests, tls)
        host: dict[str, Callable[..., Any]] = {}
        parts: tuple[Part, ...] = (
            self.scheduler,
            self.process,
            VariablesApi(requests),
            tls,
            self.balancer,
            self.threads,
        )
        for part in (*parts, self.pipes, self.errlog, EmitApi(), self.ssl, PemApi(), OcspApi(), *self.side.parts):
            host.update(part.functions())
        host.update(settings.overlay.functions if settings.overlay else {})
        values = {
            "prefix": settings.prefix if settings.prefix.endswith("/") else settings.prefix + "/",
            "configure": settings.configure,
            "max_pending_timers": settings.max_pending_timers,
            "max_running_timers": settings.max_running_timers,
            "regex_cache_max_entries": settings.regex_cache_max_entries,
            "regex_match_limit": settings.regex_match_limit,
            "worker_count": 1,
            "subsystem": self.side.name,
            "log_level": settings.error_log.level if settings.error_log.targets else DEBUG,
        }
        paths = search_paths(settings.prefix, settings.package_path, settings.package_cpath)
        self.vm = VM(host, values, paths, self.side.prelude, settings.overlay.code if settings.overlay else None)
        kind = "lua_shared_dict" if self.side.name == "http" else f"{self.side.name} lua_shared_dict"
        self.zones = [shared.zone(f"{kind} {name}", size) for name, size in settings.shared_dicts.items()]
        for zone, name in zip(self.zones, settings.shared_dicts, strict=True):
            self.vm.entry("share_dict")(name.encode("utf-8", "surrogateescape"), zone.address, zone.size)
        self.scheduler.bind(self.vm)
        self.side.bind(self.vm)
        self.threads.done = self.vm.entry("thread_done")
        self.pipes.exited = self.vm.entry("pipe_exited")
        self.run: Callable[[int, int, int], bytes | tuple[bytes, bytes] | int | bool] = self.vm.entry("run")
        self.run_plain: Callable[..., tuple[Any, ...]] = self.vm.entry("run_plain")
        self.run_set: Callable[..., tuple[Any, ...]] = self.vm.entry("run_set")
        self.filter_body: Callable[[int, int, bytes, int], tuple[Any, ...]] = self.vm.entry("filter_body")
        self.forget = self.scheduler.forget
        self.forget_modules: Callable[[], None] = self.vm.entry("forget_modules")
        self._load = self.vm.entry("load")
        self._set_conf = self.vm.entry("set_conf")
        self._inits: list[tuple[Chunk, Place | None]] = []
        self._worker_inits: list[Chunk] = []
        self._worker_exits: list[Chunk] = []
        self._files: dict[str, Chunk] = {}
        self.vm.entry("set_spin")(-1, settings.spin_time * 1e6, settings.turn_time * 1e3)

    # code

    def conf(self, values: Mapping[str, Any]) -> Any:
        """A table of settings for chunks, to be given to load() and load_file()."""
        return self.vm.table(values)

    def load(self, code: bytes, name: bytes, conf: Any) -> Chunk:
        """Compile code under a chunk name as Lua takes it (`=name` or `@file`)."""
        loaded = self._load(code, name)
        if isinstance(loaded, tuple):
            return Chunk(0, name, failure=loaded[1])
        self._set_conf(loaded, conf)
        return Chunk(loaded, name)

    def load_file(self, path: str, conf: Any) -> Chunk:
        """Compile a file. One that cannot be read gives 404 (not there) or 503 (not allowed), as in OpenResty."""
        name = b"@" + os.fsencode(path)
        try:
            with open(path, "rb") as file:
                code = file.read()
        except OSError as error:
            reason = f"cannot open {path}: {error.strerror}"
            status = {errno.ENOENT: 404, errno.EACCES: 503}.get(error.errno or 0, 500)
            return Chunk(0, name, path, reason.encode("utf-8", "surrogateescape"), status)
        if code.startswith(b"#"):
            code = b"--" + code  # a line for the shell, as luaL_loadfile skips it
        chunk = self.load(code, name, conf)
        chunk.path = path
        return chunk

    def reload_file(self, chunk: Chunk, conf: Any) -> Chunk:
        """The file of a chunk as it is now, under the same reference (lua_code_cache off)."""
        assert chunk.path is not None
        try:
            with open(chunk.path, "rb") as file:
                code = file.read()
        except OSError:
            return self.load_file(chunk.path, conf)
        failure = self.vm.entry("reload")(chunk.ref, b"--" + code if code.startswith(b"#") else code, chunk.name)
        return Chunk(chunk.ref, chunk.name, chunk.path, failure) if failure is not None else chunk

    # life

    def use_error_log(self, error_log: ErrorLog) -> None:
        """Where messages go that belong to no request; known when the whole configuration is."""
        self.settings.error_log = self.process.error_log = error_log
        self.vm.state[b"settings"][b"log_level"] = error_log.level if error_log.targets else DEBUG

    def at_init(self, chunk: Chunk, place: Place | None) -> None:
        """Run a chunk in run_init()."""
        self._inits.append((chunk, place))

    def at_worker_init(self, chunk: Chunk) -> None:
        """Run a chunk in attach()."""
        self._worker_inits.append(chunk)

    def at_worker_exit(self, chunk: Chunk) -> None:
        """Run a chunk in exit()."""
        self._worker_exits.append(chunk)

    def run_init(self, *, worker_count: int = 1) -> None:
        """Run init_by_lua in the master. Raises ConfError with the traceback."""
        self.vm.state[b"settings"][b"worker_count"] = worker_count
        for chunk, place in self._inits:
            failure = chunk.failure
            if failure is None:
                ok, *rest = self._plain(chunk.ref, 0, INIT)
                failure = None if ok else rest[0].removeprefix(b"failed to run init_by_lua*: ")
            if failure is not None:
                said = b"init_by_lua%b error: %b" % (b"" if chunk.path is None else b"_file", failure)
                self.settings.error_log.line(ERR, said)
                raise ConfError(said.decode("utf-8", "replace"), place)
        self.vm.entry("mark_modules")()

    def _plain(self, ref: int, request_id: int, phase: int) -> tuple[Any, ...]:
        result = self.run_plain(ref, request_id, phase)
        return result if isinstance(result, tuple) else (result,)

    def attach(self, loop: asyncio.AbstractEventLoop, *, worker_id: int = 0, worker_count: int = 1) -> None:
        """Tie the VM to the loop of this worker and run init_worker_by_lua (its errors go to the error log)."""
        self.vm.state[b"worker_id"] = worker_id
        self.vm.state[b"settings"][b"worker_count"] = worker_count
        self.scheduler.attach(loop)
        spin_us, turn_ms = self.settings.spin_time * 1e6, self.settings.turn_time * 1e3
        loopfd.find(loop, lambda fd: self.vm.entry("set_spin")(fd, spin_us, turn_ms))
        self._run_all(self._worker_inits, INIT_WORKER)

    def _run_all(self, chunks: list[Chunk], phase: int) -> None:
        self.process.context = b", context: init_worker_by_lua*" if phase == INIT_WORKER else b""
        for chunk in chunks:
            failure = chunk.failure
            if failure is None:
                ok, *rest = self._plain(chunk.ref, 0, phase)
                failure = None if ok else rest[0].partition(b"*: ")[2]
            if failure is not None:
                name = b"init" if phase == INIT_WORKER else b"exit"
                form = b"" if chunk.path is None else b"_file"
                self.settings.error_log.line(ERR, b"%b_worker_by_lua%b error: %b" % (name, form, failure))
        self.process.context = b""

    def begin_exit(self) -> None:
        """The worker begins to stop: timers fire as premature, idle connections close, no new timers are made."""
        self.vm.entry("exit")()

    async def timers_ended(self, within: float) -> None:
        """Wait until no timer runs any more, `within` seconds at most."""
        end = time.monotonic() + within
        while any(self.vm.entry("timer_counts")()) and time.monotonic() < end:  # noqa: ASYNC110 - seldom, and soon over
            await asyncio.sleep(_LOOK_AGAIN)

    def exit(self) -> None:
        """The worker stops and its connections are closed: handlers and timers that still wait end."""
        self.scheduler.end_all()
        self.threads.close()
        self.vm.entry("exit")()
        self._run_all(self._worker_exits, EXIT_WORKER)
        self.pipes.close()
        self.errlog.close()

    def detach(self) -> None:
        """Leave the loop; nothing runs in Lua after it."""
        self.scheduler.detach()

    # figures

    def pools(self) -> list[dict[str, Any]]:
        """The pools of cosockets that exist now, at most 500: key, idle, in_use, opened, reused, stale.

        stale: kept connections that were found dead, or were closed for room or after their idle time.
        """
        row = self.vm.entry("pool_figures")() or ()
        values = row if isinstance(row, tuple) else (row,)
        names = ("idle", "in_use", "opened", "reused", "stale")
        return [
            {"key": values[at].decode("utf-8", "replace"), **dict(zip(names, values[at + 1 : at + 6], strict=True))}
            for at in range(0, len(values), 6)
        ]

    def stats(self) -> dict[str, float]:
        """Counters of this worker's VM.

        cosockets_opened, _reused, _discarded, _closed; chain_peak: the longest chain of unsent pieces of any cosocket;
        parks: waits in the loop; spins, spins_paid: reads tried again, and those that then had data; turns: turns given
        to the loop by running handlers; timers_pending, timers_running; requests, sockets, idle;
        memory (bytes); of each shared dictionary its entries, and its free and all bytes.
        """
        stats = self.vm.state[b"stats"]
        names = ("opened", "reused", "discarded", "closed")
        found: dict[str, float] = {f"cosockets_{name}": stats[name.encode()] for name in names}
        found |= {name: stats[name.encode()] for name in ("chain_peak", "parks", "spins", "spins_paid", "turns")}
        found["timers_pending"], found["timers_running"] = self.vm.entry("timer_counts")()
        requests, sockets, idle, entries, kilobytes = self.vm.entry("sizes")()
        found |= {"requests": requests, "sockets": sockets, "idle": idle, "deadlines": entries}
        found["memory"] = kilobytes * 1024
        sizes = self.vm.entry("dict_sizes")() or ()
        for name, entries, free, size in zip(*(sizes[part::4] for part in range(4)), strict=True):
            key = f"shared_dict_{name.decode('utf-8', 'replace')}"
            found |= {f"{key}_entries": entries, f"{key}_free": free, f"{key}_size": size}
        return found
