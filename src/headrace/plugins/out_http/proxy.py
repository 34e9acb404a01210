"""Which proxy a request goes through: the `proxy` parameter, or the environment.

A proxy that is configured is used for every endpoint. Without one, `http_proxy` and `https_proxy`
(lower case first) are chosen by the endpoint's scheme, and `no_proxy` exempts hosts: names and their
subdomains, addresses, networks in CIDR form, each with an optional port, or `*`.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from headrace.core.connect import Proxy
from headrace.errors import Error, Side

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.core.tls_config import TlsConfig
    from headrace.plugins.out_http.endpoint import Endpoint

_PORTS: Final = {"http": 80, "https": 443}


def parse_proxy(url: str, tls: TlsConfig) -> Proxy:
    """A proxy's URL; `host:port` alone means http, and `https://` that the proxy itself is spoken to by `tls`.

    Raises Error, not retryable, for anything else; its text shows no credentials.
    """
    try:
        parts = urlsplit(url if "://" in url else "http://" + url)
        port = parts.port
    except ValueError as error:
        raise Error(f"proxy has no valid host and port: {_redact(url)!r}", kind="proxy", side=Side.US) from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise Error(f"proxy is no http or https URL: {_redact(url)!r}", kind="proxy", side=Side.US)
    user, password = (
        None if part is None else unquote(part, errors="surrogateescape") for part in (parts.username, parts.password)
    )
    return Proxy(parts.hostname, port or _PORTS[parts.scheme], user, password, tls if parts.scheme == "https" else None)


def _redact(url: str) -> str:
    return url.rpartition("@")[2]


class ProxyChoice:
    """The proxy of each endpoint. Built once, at start, from the parameter and the environment.

    tls: how to speak to a proxy whose own URL is https.
    """

    def __init__(self, configured: str | None, environment: Mapping[str, str], tls: TlsConfig) -> None:
        def variable(name: str) -> str:
            return environment.get(name) or environment.get(name.upper()) or ""

        self._fixed = parse_proxy(configured, tls) if configured else None
        self._by_scheme: dict[str, Proxy] = {}
        self._exempt: list[str] = []
        if self._fixed is None:
            for scheme in _PORTS:
                if url := variable(f"{scheme}_proxy"):
                    self._by_scheme[scheme] = parse_proxy(url, tls)
            self._exempt = [item for item in variable("no_proxy").replace(",", " ").lower().split() if item]

    @property
    def secure(self) -> bool:
        """Whether a proxy is spoken to by TLS."""
        return any(proxy is not None and proxy.tls is not None for proxy in (self._fixed, *self._by_scheme.values()))

    def __call__(self, endpoint: Endpoint) -> Proxy | None:
        """The proxy to use for an endpoint, None to go there directly."""
        if self._fixed is not None:
            return self._fixed
        proxy = self._by_scheme.get(endpoint.scheme)
        if proxy is None or any(_covers(item, endpoint.host, endpoint.port) for item in self._exempt):
            return None
        return proxy


def _covers(item: str, host: str, port: int) -> bool:
    if item == "*":
        return True
    if item.count(":") == 1 or item.startswith("["):
        name, colon, number = item.rpartition(":")
        if colon and number.isdigit():
            if int(number) != port:
                return False
            item = name
        item = item.strip("[]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(item, strict=False)
    except ValueError:
        name = item.removeprefix("*").lstrip(".")
        return host == name or host.endswith("." + name)
