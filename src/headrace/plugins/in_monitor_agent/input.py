"""The source `monitor_agent`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from headrace.conf.params import boolean, integer, string, time
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import ListenSpec, Source
from headrace.plugins.http_server import Page, PageServer
from headrace.plugins.in_monitor_agent.info import info_of, listed
from headrace.plugins.in_monitor_agent.meter import install
from headrace.plugins.jsoncodec import encode
from headrace.plugins.patience import Emitter
from headrace.plugins.transport import Transport
from headrace.version import FLUENTD_VERSION, VERSION

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.core.clock import Deadline
    from headrace.core.http1.events import RequestHead
    from headrace.pipeline.plugin import Plugin

JSON: Final = b"application/json"
_NOT_FOUND: Final = Page(404, b'{"message":"Not found"}', JSON)
_FALSE: Final = frozenset({"false", "no", "0"})


class MonitorAgentInput(Source):
    """Shows the figures of all plugins."""

    multi_workers_ready = True

    bind = string(default="0.0.0.0", doc="Address to listen on")
    port = integer(default=24220, doc="Port to listen on; worker N listens on port + N")
    tag = string(default=None, doc="Emit the figures as events with this tag")
    emit_interval = time(default=60.0, doc="Seconds between two of those")
    include_config = boolean(default=False, doc="Show the parameters of plugins, secrets hidden")
    include_retry = boolean(default=False, doc="Show the state of retries")
    include_debug_info = boolean(default=False, doc="Allow the queries debug and with_ivars, which show all figures")

    def validate(self, problems: Problems) -> None:
        """Check the numbers."""
        super().validate(problems)
        if not 0 <= self.port < 65536:
            problems.error(f"port {self.port} is out of range", self.place_of("port"))
        if self.emit_interval <= 0:
            problems.error('parameter "emit_interval" must be above 0', self.place_of("emit_interval"))

    def listeners(self) -> list[ListenSpec]:
        """A socket for each worker."""
        host = f"[{self.bind}]" if ":" in self.bind and not self.bind.startswith("[") else self.bind
        port = self.port + self.context.worker_id if self.port else 0
        return [ListenSpec(f"{host}:{port}", shared=False, place=self.place_of("port"))]

    async def start(self) -> None:
        """Answer from now on."""
        context = self.context
        self._meters = install(context)
        self._emitter = Emitter(self)
        (spec,) = self.listeners()
        self._server = PageServer(context, context.sockets[spec.key], Transport(), self._answer, self.log)
        self._server.start()
        self._timer: Deadline | None = None
        if self.tag is not None:
            self._timer = context.clock.deadline(self.emit_interval, self._emit)

    def _emit(self) -> None:
        assert self._timer is not None
        assert self.tag is not None
        self._timer.reschedule(self.emit_interval)
        now = self.context.clock.wall_ns()
        events = [(now, self._info(plugin)) for plugin in listed(self.context)]
        pending = self._emitter.at_once({self.tag: list(Batch.of(events).events())})
        if pending is not None:
            self.context.loop.create_task(_wait(pending), name=self.plugin_id)

    def _info(self, plugin: Plugin, **options: Any) -> dict[str, Any]:
        return info_of(plugin, self._meters.get(plugin), **{"config": False, "retry": False, **options})

    def _answer(self, path: bytes, head: RequestHead) -> Page:
        name, _, form = path.removeprefix(b"/api/").partition(b".")
        if not path.startswith(b"/api/") or name not in {b"plugins", b"config"} or form not in {b"", b"json"}:
            return _NOT_FOUND
        query = parse_qs(head.target.partition(b"?")[2].decode("latin-1"), keep_blank_values=True, errors="replace")
        wanted = {key: values[0] for key, values in query.items()}
        pretty = self.include_debug_info and "debug" in wanted
        if name == b"config":
            facts = self._facts()
            return _ltsv([facts]) if not form else _json(facts, pretty=pretty)
        told = self._told(wanted)
        return _ltsv(told) if not form else _json({"plugins": told}, pretty=pretty)

    def _told(self, wanted: dict[str, str]) -> list[dict[str, Any]]:
        options: dict[str, Any] = {
            "config": self.include_config and wanted.get("with_config", "") not in _FALSE,
            "retry": self.include_retry and wanted.get("with_retry", "") not in _FALSE,
        }
        if self.include_debug_info:
            options["debug"] = "debug" in wanted
            if "with_ivars" in wanted:
                options["ivars"] = wanted["with_ivars"].split(",")
        plugins = listed(self.context)
        if "tag" in wanted:
            found: object = self.context.root.taker_of(wanted["tag"])
            plugins = [plugin for plugin in plugins if plugin is found]
        elif (name := wanted.get("@id", wanted.get("id"))) is not None:
            plugins = [plugin for plugin in plugins if plugin.plugin_id == name]
        elif (kind := wanted.get("@type", wanted.get("type"))) is not None:
            plugins = [plugin for plugin in plugins if plugin.type_ == kind]
        return [self._info(plugin, **options) for plugin in plugins]

    def _facts(self) -> dict[str, Any]:
        settings = self.context.settings
        return {
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "version": FLUENTD_VERSION,
            "headrace_version": VERSION,
            **settings.facts,
            "root_dir": settings.root_dir,
        }

    async def quiesce(self) -> None:
        """Answer what was asked, and nothing more."""
        if getattr(self, "_timer", None) is not None:
            assert self._timer is not None
            self._timer.cancel()
        if hasattr(self, "_server"):
            await self._server.quiesce()

    async def stop(self) -> None:
        """Cut what is still open."""
        if hasattr(self, "_server"):
            self._server.stop()

    def stats(self) -> dict[str, Any]:
        """Requests, and events that were emitted."""
        if not hasattr(self, "_server"):
            return {}
        return {**self._server.stats, "events": self._emitter.events}


async def _wait(pending: Any) -> None:
    await pending


def _json(value: object, *, pretty: bool) -> Page:
    body = encode(value)
    if pretty:
        body = json.dumps(json.loads(body), indent=2, ensure_ascii=False).encode()
    return Page(200, body, JSON)


def _ltsv(rows: list[dict[str, Any]]) -> Page:
    """As Fluentd: arrays with commas, hashes left out."""
    lines = [
        "\t".join([f"{key}:{_text(value)}" for key, value in row.items() if not isinstance(value, dict)])
        for row in rows
    ]
    return Page(200, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    if value is None:
        return ""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
