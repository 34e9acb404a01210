"""The output `loki`: parameters and the way of a chunk.

What Loki answers: 2xx is delivered; 429 and 5xx are tried again; a 400 about times (out of order, too old, too far
ahead) means that Loki took the other lines and will never take these, so it is logged and done with; any other
answer gives the chunk up. (The original drops it in that case too; here it goes to <secondary> or the backup.)
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import array, boolean, enum, hash_, literal_of, raw_section, string
from headrace.conf.values import as_string
from headrace.core.tls_config import TlsConfig
from headrace.errors import Error, Side, Unrecoverable
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.plugin import Output
from headrace.pipeline.throttle import Throttle
from headrace.plugins.blanks import drop_blanks
from headrace.plugins.http_lane import HttpClient, client_tls, gzip_body
from headrace.plugins.jsoncodec import encode
from headrace.plugins.out_http.auth import basic
from headrace.plugins.out_http.endpoint import Endpoint, parse
from headrace.plugins.out_http.proxy import ProxyChoice
from headrace.plugins.out_http.request import FRAMING, is_field_name, is_field_value
from headrace.plugins.out_loki.lines import Shape, label_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.lanes import Lane
    from headrace.plugins.out_loki.lines import Labels

PUSH: Final = "/loki/api/v1/push"
TIMEOUT: Final = 60.0
"""Seconds to connect, and between the parts of an answer (Net::HTTP's own)."""
TOKEN_AGE: Final = 60.0
"""Seconds after which the file of a token is read again."""
SLICE: Final = 500
"""Records that are formatted before others get their turn on the loop."""
THREADED: Final = 128 << 10
"""Bytes from which a body is compressed in a thread."""
_GZIP_LEVEL: Final = 6
_BAD_TIME: Final = re.compile(rb"out of order|too old|too far behind|too new|timestamp", re.IGNORECASE)


class LokiOutput(Output):
    """Sends records to Grafana Loki."""

    old_style: ClassVar[Mapping[str, str]] = {"buffer": ""}

    url = string(default="https://logs-prod-us-central1.grafana.net", doc="Where Loki is; the path is added")
    username = string(default=None, doc="User for HTTP Basic")
    password = string(default=None, secret=True, doc="Password for HTTP Basic")
    bearer_token_file = string(default=None, secret=True, doc="File with a token for Authorization: Bearer")
    cert = string(default=None, doc="PEM file of the client certificate, its chain after it")
    key = string(default=None, doc="PEM file of its key")
    ca_cert = string(default=None, doc="PEM file of the CAs to trust; absent: the system's")
    ciphers = string(default=None, doc="OpenSSL's list of ciphers for TLS 1.2 and older")
    min_version = string(default=None, doc="Oldest version of TLS, such as TLS1_2")
    insecure_tls = boolean(default=False, doc="Do not verify the server's certificate")
    custom_headers = hash_(default={}, value_type=as_string, doc="Header fields to add")
    compress = enum(("gzip",), default=None, doc="Compression of the body")
    tenant = string(default=None, placeholders=True, doc="The tenant (X-Scope-OrgID)")
    extra_labels = hash_(default={}, value_type=as_string, doc="Labels of every stream")
    line_format = enum(("json", "key_value"), default="key_value", doc="Form of the lines")
    extract_kubernetes_labels = boolean(default=False, doc="Make labels of kubernetes.labels")
    remove_keys = array(default=[], doc="Fields that no line shall have")
    drop_single_key = boolean(default=False, doc="Where one field is left, its value is the line")
    include_thread_label = boolean(
        default=True, doc="With several flush threads, add fluentd_thread, so that no stream has two senders"
    )
    label_sections = raw_section(name="label", multi=True, doc="Names of labels and the fields they come from")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        drop_blanks(self, "username", "password", "bearer_token_file", "cert", "key", "ca_cert", "ciphers", "tenant")
        self._endpoint: Endpoint | None = None
        try:
            self._endpoint = parse(self.url.rstrip("/") + PUSH)
        except Error:
            problems.error("URL parameter must have HTTP/HTTPS scheme", self.place_of("url"))
        self._labels = self._accessors(problems)
        self._removed: list[Accessor] = []
        for text in self.remove_keys:
            try:
                self._removed.append(Accessor(text))
            except ValueError as error:
                problems.error(f'parameter "remove_keys": {error}', self.place_of("remove_keys"))
        for name, value in self.custom_headers.items():
            if not is_field_name(name) or not is_field_value(value) or name.lower() in FRAMING:
                problems.error(f'"{name}" in custom_headers cannot be sent', self.place_of("custom_headers"))
        path = self.bearer_token_file
        if path is not None and not Path(path).is_file():
            problems.error(f"bearer_token_file {path} not found", self.place_of("bearer_token_file"))
        if (self.cert is None) != (self.key is None):
            problems.error("cert and key are set together", self.place_of("cert" if self.cert else "key"))
        self._validate_connection(problems)

    def _validate_connection(self, problems: Problems) -> None:
        self._tls: TlsConfig | None = None
        if self._endpoint is not None and self._endpoint.scheme == "https":
            self._tls = client_tls(
                self,
                problems,
                {"ca_cert": self.ca_cert, "cert": self.cert, "key": self.key},
                min_version=self.min_version or "TLSv1_2",
                ciphers=self.ciphers,
                ca_path=self.ca_cert,
                cert=self.cert,
                key=self.key,
                verify_mode="none" if self.insecure_tls else "peer",
            )
        try:
            self._proxies = ProxyChoice(None, os.environ, TlsConfig())
        except Error as error:
            problems.error(error.message, self.place)

    def _accessors(self, problems: Problems) -> list[tuple[str, Accessor]]:
        found: list[tuple[str, Accessor]] = []
        for section in self.label_sections:
            for child in section.block or ():
                try:
                    found.append((label_name(child.name), Accessor(str(literal_of(child) or child.name))))
                except ValueError as error:
                    problems.error(f'label "{child.name}": {error}', child.place)
        return found

    def provision(self, context: Context) -> None:
        """Prepare what makes lines."""
        self._client: HttpClient | None = None
        self._ignored = Throttle()
        self._token: tuple[float, str] | None = None
        runner = self.runner
        many = self.include_thread_label and runner is not None and runner.section.flush_thread_count > 1
        self._thread_label = many
        self._shapes: dict[int, Shape] = {}

    async def start(self) -> None:
        """Connections are opened when the first chunk is sent."""
        self._client = HttpClient(
            self.context, tls=self._tls, open_timeout=TIMEOUT, read_timeout=TIMEOUT, proxies=self._proxies
        )

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk. Raises Error as the module's text says."""
        assert self._client is not None
        assert self._endpoint is not None
        body = await self._body(chunk, self._shapes.get(lane.index) or self._shape(lane))
        fields = [*self.custom_headers.items(), ("Content-Type", "application/json")]
        if self.compress == "gzip":
            pack = partial(gzip_body, body, _GZIP_LEVEL)
            body = pack() if len(body) < THREADED else await self.context.loop.run_in_executor(None, pack)
            fields.append(("Content-Encoding", "gzip"))
        if self.username is not None:
            fields.append(("Authorization", basic(self.username, self.password or "")))
        elif self.bearer_token_file is not None:
            fields.append(("Authorization", f"Bearer {self._bearer(self.bearer_token_file)}"))
        if self.tenant is not None:
            fields.append(("X-Scope-OrgID", chunk.extract_placeholders(self.tenant)))
        answer = await self._client.send(lane.index, "POST", self._endpoint, fields, body)
        status = answer.status
        if 200 <= status < 300:
            return
        told = answer.body[:1024].decode("utf-8", "replace").strip()
        message = f"{status} {answer.reason.decode('utf-8', 'replace')} {told}"
        if status == 400 and _BAD_TIME.search(answer.body):
            self._ignored.log(self.log, logging.WARNING, "lines that Loki does not take any more: %s", message)
        elif status == 429 or status >= 500:
            raise Error(message, kind=f"http_{status}", side=Side.SERVER, retryable=True)
        else:
            raise Unrecoverable(message, kind=f"http_{status}")

    def _shape(self, lane: Lane) -> Shape:
        fixed = dict(self.extra_labels)
        if self._thread_label:
            fixed.setdefault("fluentd_thread", f"flush_thread_{lane.index}")
        made = self._shapes[lane.index] = Shape(
            labels=self._labels,
            fixed=fixed,
            kubernetes=self.extract_kubernetes_labels,
            removed=self._removed,
            json=self.line_format == "json",
            drop_single_key=self.drop_single_key,
        )
        return made

    async def _body(self, chunk: Chunk, shape: Shape) -> bytes:
        """All streams of a chunk, the lines of each in the order of their times."""
        streams: dict[Labels, list[tuple[int, str]]] = {}
        for number, (time, record) in enumerate(chunk.events(), 1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            try:
                labels, line = shape.split(record)
            except ValueError as error:
                self.router.emit_error_event(chunk.tag or "", time, record, error)
                continue
            lines = streams.get(labels)
            if lines is None:
                lines = streams[labels] = []
            lines.append((time, line))
        made: list[dict[str, Any]] = []
        for labels, lines in streams.items():
            lines.sort(key=_by_time)
            values = [(str(time), line) for time, line in lines]
            made.append({"stream": dict(labels), "values": values})
        return encode({"streams": made})

    def _bearer(self, path: str) -> str:
        """The token; its file may be renewed while we run. Raises Error, retryable, when it cannot be read."""
        now = self.context.clock.now()
        if self._token is None or now - self._token[0] > TOKEN_AGE:
            try:
                text = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise Error(f"bearer_token_file cannot be read: {error}", kind="token", retryable=True) from error
            if not text:
                raise Error("bearer_token_file is empty", kind="token", retryable=True)
            self._token = (now, text)
        return self._token[1]

    async def stop(self) -> None:
        """Close the connections of all lanes."""
        if self._client is not None:
            self._client.close()

    def stats(self) -> dict[str, Any]:
        """Connections, and requests of which Loki ignored lines."""
        connections = self._client.stats() if self._client is not None else {}
        return {"connections": connections, "ignored": self._ignored.count}


def _by_time(entry: tuple[int, str]) -> int:
    return entry[0]
