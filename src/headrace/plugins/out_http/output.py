"""The output `http`: what its parameters mean, and the way of a chunk through the parts beside it."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import (
    Configurable,
    array,
    boolean,
    enum,
    hash_,
    raw_section,
    reserved,
    section,
    string,
    time,
)
from headrace.conf.values import as_string
from headrace.core.connect import Target, dial
from headrace.core.tls_config import TlsConfig
from headrace.errors import ConfError, Error, Unrecoverable
from headrace.pipeline import codec
from headrace.pipeline.plugin import Output
from headrace.plugins.out_http.auth import INSTALL_HINT, AwsSigner, basic, botocore_installed
from headrace.plugins.out_http.connection import Counters, LaneConnection
from headrace.plugins.out_http.endpoint import parse, template_host
from headrace.plugins.out_http.policy import DEFAULT_RETRYABLE, ResponsePolicy, parse_codes
from headrace.plugins.out_http.proxy import ProxyChoice
from headrace.plugins.out_http.request import CONTENT_TYPES, FRAMING, build_head, gzip_member, is_field_name
from headrace.plugins.transport import CIPHERS, VERSIONS

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.core.stream import Stream
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter
    from headrace.plugins.out_http.endpoint import Endpoint

KEPT_HEADS: Final = 1024
THREADED: Final = 128 << 10
"""Bytes from which a body is compressed in a thread: zlib lets the loop run meanwhile."""


class Auth(Configurable):
    """Authorization of every request."""

    method = enum(("basic", "aws_sigv4"), default="basic", doc="HTTP Basic, or AWS Signature Version 4")
    username = string(default=None, doc="User for basic")
    password = string(default=None, secret=True, doc="Password for basic")
    aws_service = string(default=None, doc="AWS service to sign for, such as osis")
    aws_region = string(default=None, doc="AWS region to sign for")
    aws_role_arn = string(default=None, doc="AWS role to assume; absent: the credentials that botocore finds")

    def validate(self, problems: Problems) -> None:
        """Check that the method has what it needs."""
        if self.method == "basic":
            if self.username is None:
                problems.error("<auth> with method basic needs username", self.place)
            return
        for name in ("aws_service", "aws_region"):
            if getattr(self, name) is None:
                problems.error(f"{name} is required for aws_sigv4 auth", self.place)
        if not botocore_installed():
            problems.error("aws_sigv4 auth needs botocore, which is not installed", self.place, hint=INSTALL_HINT)


class HttpOutput(Output):
    """Sends chunks as bodies of HTTP requests."""

    endpoint = string(placeholders=True, doc="URL to send to; http or https")
    http_method = enum(("post", "put"), default="post", doc="Method of the requests")
    proxy = string(
        default=None,
        doc="URL of a proxy for all requests; absent: http_proxy, https_proxy and no_proxy of the environment",
    )
    content_type = string(default=None, doc="Content-Type; absent: it follows from the formatter")
    json_array = boolean(default=False, doc="With the json formatter: one array instead of a line for each record")
    headers = hash_(default=None, value_type=as_string, doc="Header fields to add")
    headers_from_placeholders = hash_(
        default=None, value_type=as_string, placeholders=True, doc="Header fields to add, with placeholders"
    )
    compress = enum(("text", "gzip"), default="text", doc="Compression of the body (one gzip member)")
    allowed_hosts = array(
        default=[], doc="Hosts that an endpoint may name whose host has a placeholder; required for such an endpoint"
    )
    open_timeout = time(default=60.0, doc="Seconds to wait for a connection")
    read_timeout = time(default=60.0, doc="Seconds to wait for the reply, and between its parts")
    ssl_timeout = time(default=60.0, doc="Seconds to wait for the TLS handshake")
    reuse_connections = boolean(
        default=False, doc="Keep the connection of each flush thread, and send the next chunk on it"
    )
    tls_ca_cert_path = string(default=None, doc="PEM file of the CAs to trust; absent: the system's")
    tls_client_cert_path = string(default=None, doc="PEM file of the client certificate, its chain after it")
    tls_private_key_path = string(default=None, doc="PEM file of the client certificate's key")
    tls_private_key_passphrase = string(default=None, secret=True, doc="Passphrase of that key")
    tls_verify_mode = enum(("none", "peer"), default="peer", doc="Whether the server's certificate is verified")
    tls_version = enum(VERSIONS, default="TLSv1_2", doc="The version of TLS")
    tls_ciphers = string(default=CIPHERS, doc="OpenSSL's list of ciphers for TLS 1.2 and older")
    proxy_tls_ca_cert_path = string(default=None, doc="As tls_ca_cert_path, for a proxy with an https URL")
    proxy_tls_client_cert_path = string(default=None, doc="As tls_client_cert_path, for the proxy")
    proxy_tls_private_key_path = string(default=None, doc="As tls_private_key_path, for the proxy")
    proxy_tls_private_key_passphrase = string(default=None, secret=True, doc="Passphrase of that key")
    proxy_tls_verify_mode = enum(("none", "peer"), default="peer", doc="As tls_verify_mode, for the proxy")
    error_response_as_unrecoverable = boolean(
        default=True, doc="Replies that are no success give the chunk up; false: they are logged and it is dropped"
    )
    retryable_response_codes = array(
        default=None,
        doc="Status codes after which the chunk is tried again (503): numbers, classes such as 5xx, or the word "
        "transient for 408, 425, 429 and 5xx",
    )
    format_section = raw_section(name="format", doc="The formatter of records; json by default")
    auth = section(Auth, name="auth", doc="Authorization of the requests")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        self._host: str | None = None
        try:
            self._host = template_host(self.endpoint)
        except Error as error:
            problems.error(f"invalid endpoint: {error.message}", self.place_of("endpoint"))
        else:
            self._validate_endpoint(problems)
        try:
            codes = self.retryable_response_codes
            retryable = DEFAULT_RETRYABLE if codes is None else parse_codes(codes)
            self._policy = ResponsePolicy(retryable, unrecoverable=self.error_response_as_unrecoverable)
        except ValueError as error:
            problems.error(f'parameter "retryable_response_codes": {error}', self.place_of("retryable_response_codes"))
        for name in ("headers", "headers_from_placeholders"):
            for key in getattr(self, name) or ():
                if not is_field_name(key):
                    problems.error(f'"{key}" in {name} is no name of a header field', self.place_of(name))
                elif key.lower() in FRAMING:
                    hint = "reuse_connections decides about the connection; the length is counted"
                    problems.error(f'"{key}" in {name} cannot be set', self.place_of(name), hint=hint)
        self._validate_tls(problems)
        self._validate_proxy(problems)

    def _validate_endpoint(self, problems: Problems) -> None:
        if self._host is None and not self.allowed_hosts:
            problems.error(
                "allowed_hosts is required when the host of endpoint has a placeholder", self.place_of("endpoint")
            )
        if "@" in self.endpoint.partition("://")[2].partition("/")[0]:
            problems.warn(
                "the user name in endpoint is not sent", self.place_of("endpoint"), hint="use <auth> with method basic"
            )

    def _validate_tls(self, problems: Problems) -> None:
        secure = not self.endpoint.lower().startswith("http://")
        self._tls: TlsConfig | None = None
        if secure and self._files_exist("tls_", problems):
            self._tls = self._context(
                problems,
                TlsConfig(
                    min_version=self.tls_version,
                    max_version=self.tls_version,
                    ciphers=self.tls_ciphers,
                    ca_path=self.tls_ca_cert_path,
                    cert=self.tls_client_cert_path,
                    key=self.tls_private_key_path,
                    passphrase=self.tls_private_key_passphrase,
                    verify_mode=self.tls_verify_mode,
                ),
            )

    def _validate_proxy(self, problems: Problems) -> None:
        tls = TlsConfig(
            ca_path=self.proxy_tls_ca_cert_path,
            cert=self.proxy_tls_client_cert_path,
            key=self.proxy_tls_private_key_path,
            passphrase=self.proxy_tls_private_key_passphrase,
            verify_mode=self.proxy_tls_verify_mode,
        )
        try:
            self._proxies = ProxyChoice(self.proxy, os.environ, tls)
        except Error as error:
            problems.error(error.message, self.place_of("proxy"))
            return
        # A context reads the system's store of CAs, which takes longer than the rest of a start.
        if self._files_exist("proxy_tls_", problems) and self._proxies.secure:
            self._context(problems, tls)

    def _files_exist(self, prefix: str, problems: Problems) -> bool:
        right = True
        for name in ("ca_cert_path", "client_cert_path", "private_key_path"):
            path = getattr(self, prefix + name)
            if path is not None and not Path(path).exists():
                problems.error(f"{prefix}{name} is wrong: {path}", self.place_of(prefix + name))
                right = False
        return right

    def _context(self, problems: Problems, config: TlsConfig) -> TlsConfig:
        try:
            config.context()
        except ConfError as error:
            problems.error(error.message, self.place, hint=error.hint)
        return config

    def provision(self, context: Context) -> None:
        """Make the formatter, and what follows from it."""
        section_ = self.format_section
        formatter_type = (section_ and reserved(section_, "@type")) or "json"
        if section_ is None:
            self._formatter: Formatter = context.make_default("formatter", "json", self, "format")
        else:
            self._formatter = context.make("formatter", section_, default_type="json")
        if self.json_array and formatter_type != "json":
            raise ConfError("json_array option could be used with json formatter only", self.place_of("json_array"))
        type_ = self.content_type or ("application/json" if self.json_array else CONTENT_TYPES.get(formatter_type))
        if type_ is None:
            raise ConfError(
                f"the Content-Type of formatter {formatter_type} is not known", self.place, hint="set content_type"
            )
        self._content_type = type_
        self._method = self.http_method.upper()
        self._dynamic = "$" in self.endpoint or "%" in self.endpoint or bool(self.headers_from_placeholders)
        self._heads: dict[tuple[str, ...], tuple[Endpoint, bytes]] = {}
        self._lanes: dict[int, LaneConnection] = {}
        self._signer: AwsSigner | None = None
        self._authorization: str | None = None
        if self.auth.present and self.auth.method == "basic":
            self._authorization = basic(self.auth.username or "", self.auth.password or "")

    async def start(self) -> None:
        """Prepare signing; connections are opened when the first chunk is sent."""
        auth = self.auth
        if auth.present and auth.method == "aws_sigv4":
            clock = self.context.clock
            self._signer = AwsSigner(
                auth.aws_service or "", auth.aws_region or "", auth.aws_role_arn, lambda: clock.wall_ns() / 1e9
            )

    def format(self, tag: str, time: int, record: Record) -> bytes | None:
        """One record as the formatter writes it, or as an element of the array."""
        text = self._formatter.format(tag, time, record)
        return text.rstrip(b"\n") + b"," if self.json_array else text

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Send a chunk. Raises Error as the reply's status says, ConnectionFailed, Unrecoverable."""
        connection = self._lanes.get(lane.index) or self._lane(lane)
        endpoint, head = self._head(chunk)
        body = await self._body(chunk)
        if self._signer is not None:
            signed = await self._signer.headers(self._method, endpoint, self._content_type, body)
            head = self._build(endpoint, [*self._fields(chunk), *signed])
        response = await connection.send(endpoint, b"%b%d\r\n\r\n" % (head, len(body)), body)
        error = self._policy.judge(response.status, response.reason, response.body)
        if error is None:
            return
        if error.retryable or isinstance(error, Unrecoverable):
            raise error
        self.log.log(
            logging.ERROR, "got error response from '%s %s' : %s", self._method.title(), endpoint, error.message
        )

    def _lane(self, lane: Lane) -> LaneConnection:
        made = LaneConnection(
            self._dial,
            method=self._method.encode(),
            reuse=self.reuse_connections,
            read_timeout=self.read_timeout,
        )
        lane.state = self._lanes[lane.index] = made
        return made

    def _head(self, chunk: Chunk) -> tuple[Endpoint, bytes]:
        """Where the chunk goes, and the head of its request."""
        key: tuple[str, ...] = ()
        if self._dynamic:
            texts = (self.endpoint, *(self.headers_from_placeholders or {}).values())
            key = tuple(chunk.extract_placeholders(text) for text in texts)
        made = self._heads.get(key)
        if made is None:
            endpoint = parse(key[0] if key else self.endpoint)
            if endpoint.host != self._host and endpoint.host not in self.allowed_hosts:
                raise Unrecoverable(f"Not allowed host: {endpoint.host}", kind="endpoint")
            made = (endpoint, self._build(endpoint, self._fields(chunk)))
            if len(self._heads) >= KEPT_HEADS:
                self._heads.clear()
            self._heads[key] = made
        return made

    def _fields(self, chunk: Chunk) -> list[tuple[str, str]]:
        fields = list((self.headers or {}).items())
        for name, text in (self.headers_from_placeholders or {}).items():
            fields.append((name, chunk.extract_placeholders(text)))
        if self.compress == "gzip":
            fields.append(("Content-Encoding", "gzip"))
        fields.append(("Content-Type", self._content_type))
        return fields

    def _build(self, endpoint: Endpoint, fields: list[tuple[str, str]]) -> bytes:
        proxy = self._proxies(endpoint)
        forwarded = proxy is not None and endpoint.scheme == "http"
        return build_head(
            self._method,
            endpoint,
            fields,
            keep_alive=self.reuse_connections,
            forwarded=forwarded,
            authorization=self._authorization,
            proxy_authorization=proxy.authorization if proxy is not None and forwarded else None,
        )

    async def _body(self, chunk: Chunk) -> bytes:
        """The body: one gzip member at most, made once, whoever made it."""
        if self.compress == "gzip" and chunk.codec == codec.GZIP and not self.json_array:
            return chunk.read_compressed("gzip")
        body = chunk.read()
        if self.json_array:
            body = b"[" + body[:-1] + b"]"
        if self.compress == "text":
            return body
        if len(body) < THREADED:
            return gzip_member(body)
        return await asyncio.get_running_loop().run_in_executor(None, gzip_member, body)

    async def _dial(self, endpoint: Endpoint) -> Stream:
        context = self.context
        target = Target(endpoint.host, endpoint.port)
        tls = self._tls if endpoint.scheme == "https" else None
        proxy = self._proxies(endpoint)
        if proxy is not None and tls is None:
            # A proxy fetches http URLs itself: it is the one that is spoken to.
            target, tls, proxy = Target(proxy.host, proxy.port), proxy.tls, None
        return await dial(
            target,
            loop=context.loop,
            clock=context.clock,
            timeout=self.open_timeout,
            tls=tls,
            tls_timeout=self.ssl_timeout,
            proxy=proxy,
        )

    async def stop(self) -> None:
        """Close the connections of all lanes."""
        for connection in self._lanes.values():
            connection.close()

    def stats(self) -> dict[str, Any]:
        """Counters of connections: the sum, and by lane; `open` is how many are kept now."""
        names = Counters().as_dict()
        lanes = {index: connection.counters.as_dict() for index, connection in sorted(self._lanes.items())}
        total = {name: sum(figures[name] for figures in lanes.values()) for name in names}
        total["open"] = sum(connection.stream is not None for connection in self._lanes.values())
        return {"connections": total, "lanes": lanes}
