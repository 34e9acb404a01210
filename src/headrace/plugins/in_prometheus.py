"""Source `prometheus`: answers with the figures of this worker, or of all workers.

https://github.com/fluent/fluent-plugin-prometheus. Worker N listens on `port` + N.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import Configurable, boolean, enum, hash_, integer, section, string, time
from headrace.conf.tree import Directive
from headrace.core.connect import Target, dial
from headrace.core.http1.client import exchange
from headrace.core.tls_config import TlsConfig
from headrace.errors import Error
from headrace.pipeline.plugin import ListenSpec, Source
from headrace.pipeline.throttle import Throttle
from headrace.plugins.http_server import NOT_FOUND, Page, PageServer
from headrace.plugins.prometheus.registry import registry_of
from headrace.plugins.prometheus.text import OPEN, PLAIN, Aggregate, render, render_open, wants_open
from headrace.plugins.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.params import Problems
    from headrace.core.http1.events import RequestHead
    from headrace.pipeline.context import Context

SIBLING_TIMEOUT: Final = 10.0
"""Seconds that another worker may take to answer."""
MAX_TEXT: Final = 64 << 20
"""Bytes of another worker's figures that are read."""
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "*": "127.0.0.1", "::": "::1", "[::]": "::1"}


class Ssl(Configurable):
    """TLS, as it was configured before <transport tls>."""

    enable = boolean(default=False, deprecated="use <transport tls>", doc="Speak TLS")
    certificate_path = string(default=None, deprecated="use cert_path in <transport tls>", doc="PEM certificate")
    private_key_path = string(
        default=None, deprecated="use private_key_path in <transport tls>", doc="PEM file of the certificate's key"
    )
    ca_path = string(default=None, deprecated="use ca_path in <transport tls>", doc="CAs for client certificates")
    extra_conf = hash_(default=None, obsoleted="it configures WEBrick, which is not here", doc="Settings of WEBrick")


class PrometheusInput(Source):
    """Answers Prometheus."""

    multi_workers_ready = True

    bind = string(default="127.0.0.1", doc="Address to listen on")
    port = integer(default=24231, doc="Port to listen on; worker N takes port + N")
    metrics_path = string(default="/metrics", doc="Path of this worker's figures")
    aggregated_metrics_path = string(default="/aggregated_metrics", doc="Path of the figures of all workers")
    content_encoding = enum(("identity", "gzip"), default="identity", doc="Compression of the answers")
    ignore_error_log_interval = time(default=3600.0, doc="Seconds between two log lines about failing answers")
    ssl = section(Ssl, name="ssl", doc="TLS in the old form")
    transport = section(Transport, name="transport", argument="protocol", doc="Plain TCP or TLS")

    def validate(self, problems: Problems) -> None:
        """Check the port and take <ssl> as the transport."""
        super().validate(problems)
        if not 0 <= self.port < 65536:
            problems.error(f"port {self.port} is out of range", self.place_of("port"))
        for name in ("metrics_path", "aggregated_metrics_path"):
            if not getattr(self, name).startswith("/"):
                problems.error(f'parameter "{name}" must begin with /', self.place_of(name))
        if self.metrics_path == self.aggregated_metrics_path:
            problems.error("metrics_path and aggregated_metrics_path are the same", self.place_of("metrics_path"))
        if self.ssl.enable:
            self._old_ssl(problems)

    def _old_ssl(self, problems: Problems) -> None:
        ssl = self.ssl
        directive = ssl.directive
        assert directive is not None
        pairs = {"cert_path": ssl.certificate_path, "private_key_path": ssl.private_key_path, "ca_path": ssl.ca_path}
        given = {name: value for name, value in pairs.items() if value is not None}
        if ("cert_path" in given) != ("private_key_path" in given):
            problems.error("both certificate_path and private_key_path must be defined", directive.place)
            return
        if "cert_path" not in given:
            given["insecure"] = "true"
        place = (directive.file, directive.line)
        block = tuple(Directive(name, (value,), *place, values=(value,)) for name, value in given.items())
        made = Transport()
        section_ = Directive("transport", ("tls",), *place, block=block)
        made.take_argument("protocol", section_, problems)
        made.configure(section_, problems)
        self.__dict__["transport"] = made

    def provision(self, context: Context) -> None:
        """Know the ports of all workers."""
        self._server: PageServer | None = None
        self._registry = registry_of(context)
        self._failures = Throttle(burst=1, interval=self.ignore_error_log_interval)
        if self.port and self.port + context.settings.workers > 65536:
            context.problems.error("port + workers is out of range", self.place_of("port"))

    @property
    def _own_port(self) -> int:
        return self.port + self.context.worker_id if self.port else 0

    def listeners(self) -> list[ListenSpec]:
        """One TCP socket, which is this worker's alone."""
        host = f"[{self.bind}]" if ":" in self.bind and not self.bind.startswith("[") else self.bind
        return [ListenSpec(f"{host}:{self._own_port}", shared=False, place=self.place_of("port"))]

    async def start(self) -> None:
        """Answer from now on."""
        self.transport.open()
        sock = self.context.sockets[self.listeners()[0].address]
        self._server = PageServer(self.context, sock, self.transport, self._answer, self.log)
        self._server.start()

    def _answer(self, path: bytes, head: RequestHead) -> Page | Awaitable[Page]:
        if path == self.metrics_path.encode():
            return self._own(open_=wants_open(head.header(b"accept")))
        if path == self.aggregated_metrics_path.encode():
            return self._all()
        return NOT_FOUND

    def _own(self, *, open_: bool) -> Page:
        try:
            families = self._registry.collect()
            return self._page(render_open(families), OPEN) if open_ else self._page(render(families), PLAIN)
        except Exception as error:  # noqa: BLE001 - one plugin's figures must not end the server
            return self._failed("failed to render metrics", error)

    async def _all(self) -> Page:
        try:
            whole = Aggregate()
            others = [index for index in range(self.context.settings.workers) if index != self.context.worker_id]
            texts = await asyncio.gather(*[self._ask(index) for index in others])
            texts.insert(self.context.worker_id, render(self._registry.collect()))
            for text in texts:
                whole.add(text)
            return self._page(whole.render(), PLAIN)
        except Exception as error:  # noqa: BLE001 - another worker may be starting
            return self._failed("failed to render workers metrics", error)

    def _page(self, text: bytes, type_: bytes) -> Page:
        if self.content_encoding == "gzip":
            return Page(200, gzip.compress(text, 6, mtime=0), type_, b"gzip")
        return Page(200, text, type_)

    def _failed(self, what: str, error: Exception) -> Page:
        self._failures.log(self.log, logging.ERROR, "%s: %r", what, error)
        return Page(500, f"in_prometheus server error: <{type(error).__name__}>\n".encode())

    async def _ask(self, index: int) -> bytes:
        """The figures of another worker. Raises Error."""
        context = self.context
        host = _EVERYWHERE.get(self.bind, self.bind).strip("[]")
        target = Target(host, self.port + index)
        # It is one of our own processes on this machine: the certificate need not be of its address.
        tls = TlsConfig(verify_mode="none", verify_hostname=False) if self.transport.tls is not None else None
        stream = await dial(target, loop=context.loop, clock=context.clock, timeout=SIBLING_TIMEOUT, tls=tls)
        try:
            request = f"GET {self.metrics_path} HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
            answer = await exchange(stream, request.encode(), read_timeout=SIBLING_TIMEOUT, max_body=MAX_TEXT)
        finally:
            stream.close()
        if answer.status != 200 or answer.truncated:
            raise Error(f"worker {index} answered {answer.status}", kind="prometheus")
        coded = answer.header(b"content-encoding")
        return gzip.decompress(answer.body) if coded == b"gzip" else answer.body

    async def quiesce(self) -> None:
        """Take no more questions."""
        if self._server is not None:
            await self._server.quiesce()

    async def stop(self) -> None:
        """Cut what is still open."""
        if self._server is not None:
            self._server.stop()

    async def close(self) -> None:
        """Remove a certificate that was made at start."""
        self.transport.close()

    def stats(self) -> dict[str, Any]:
        """Requests and connections."""
        return self._server.stats if self._server is not None else {}
