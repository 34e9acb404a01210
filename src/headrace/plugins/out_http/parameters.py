"""The parameters of the http output, and everything about them that `check` can find out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, array, boolean, enum, hash_, raw_section, section, string, time
from headrace.conf.values import as_string
from headrace.core.tls_config import TlsConfig
from headrace.errors import ConfError, Error
from headrace.pipeline.plugin import Output
from headrace.plugins.out_http.auth import INSTALL_HINT, botocore_installed
from headrace.plugins.out_http.endpoint import template_host
from headrace.plugins.out_http.peers import MODES
from headrace.plugins.out_http.policy import DEFAULT_RETRYABLE, ResponsePolicy, parse_codes
from headrace.plugins.out_http.proxy import ProxyChoice
from headrace.plugins.out_http.request import FRAMING, is_field_name, is_field_value
from headrace.plugins.transport import CIPHERS, VERSIONS

if TYPE_CHECKING:
    from headrace.conf.params import Problems


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


class HttpParameters(Output):
    """The parameters, and what is made of them before anything runs."""

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
    chunk_id_header = enum(
        MODES,
        default="auto",
        doc="Name the chunk in X-Headrace-Chunk, so that a headrace at the other end keeps it once; auto: until the "
        "endpoint has shown that it does not know the field (not in Fluentd)",
    )
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
                elif not is_field_value(getattr(self, name)[key]):
                    problems.error(f'the value of "{key}" in {name} holds a line break or NUL', self.place_of(name))
        if self.content_type is not None and not is_field_value(self.content_type):
            problems.error('parameter "content_type" holds a line break or NUL', self.place_of("content_type"))
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
