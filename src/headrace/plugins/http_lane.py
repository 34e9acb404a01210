"""HTTP requests of plugins that speak to a service: elasticsearch, opensearch, loki, the API of kubernetes.

Each owner (a flush lane, a watcher) has connections of its own, one for each place it speaks to, and nobody else
touches them: see plugins/out_http/connection.py, whose rules about reuse and resending hold here too.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.core.connect import Target, dial
from headrace.core.names import Names
from headrace.core.tls_config import TlsConfig
from headrace.errors import ConfError
from headrace.plugins.out_http.connection import Counters, LaneConnection
from headrace.plugins.out_http.request import build_head

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from headrace.conf.params import Configurable, Problems
    from headrace.core.http1.client import Response
    from headrace.core.stream import Stream
    from headrace.pipeline.context import Context
    from headrace.plugins.out_http.endpoint import Endpoint
    from headrace.plugins.out_http.proxy import ProxyChoice

MAX_REPLY: Final = 64 << 20
"""Bytes of a reply that are read: the answer to a bulk request tells of each of its items."""


class HttpClient:
    """The connections of one plugin, by owner.

    tls: for https endpoints. open_timeout, read_timeout: seconds to connect (and shake hands), and between two
    reads of a reply. proxies: which proxy leads to an endpoint.
    """

    def __init__(
        self,
        context: Context,
        *,
        tls: TlsConfig | None,
        open_timeout: float,
        read_timeout: float | None,
        proxies: ProxyChoice | None = None,
        max_reply: int = MAX_REPLY,
    ) -> None:
        self._context = context
        self._tls = tls
        self._open_timeout = open_timeout
        self._read_timeout = read_timeout
        self._proxies = proxies
        self._max_reply = max_reply
        self._names = Names()
        self._connections: dict[Hashable, LaneConnection] = {}

    async def send(
        self, owner: Hashable, method: str, endpoint: Endpoint, fields: Iterable[tuple[str, str]], body: bytes = b""
    ) -> Response:
        """One request and its whole answer. Raises ConnectionFailed (Timeout among them), retryable."""
        connection = self._connections.get(owner)
        if connection is None:
            connection = self._connections[owner] = LaneConnection(
                self._dial,
                self._context.clock.now,
                method=method.encode(),
                reuse=True,
                read_timeout=self._read_timeout,
                max_reply=self._max_reply,
            )
        proxy = self._proxies(endpoint) if self._proxies is not None else None
        forwarded = proxy is not None and endpoint.scheme == "http"
        head = build_head(
            method,
            endpoint,
            fields,
            keep_alive=True,
            forwarded=forwarded,
            proxy_authorization=proxy.authorization if proxy is not None and forwarded else None,
        )
        return await connection.send(endpoint, b"%b%d\r\n\r\n" % (head, len(body)), body, method.encode())

    async def dial(self, endpoint: Endpoint) -> Stream:
        """A connection that the caller owns, for an answer without an end."""
        return await self._dial(endpoint)

    async def _dial(self, endpoint: Endpoint) -> Stream:
        context = self._context
        target = Target(endpoint.host, endpoint.port)
        tls = self._tls if endpoint.scheme == "https" else None
        proxy = self._proxies(endpoint) if self._proxies is not None else None
        if proxy is not None and tls is None:
            # A proxy fetches http URLs itself: it is the one that is spoken to.
            target, tls, proxy = Target(proxy.host, proxy.port), proxy.tls, None
        return await dial(
            target,
            loop=context.loop,
            clock=context.clock,
            timeout=self._open_timeout,
            tls=tls,
            proxy=proxy,
            names=self._names,
        )

    def forget(self, owner: Hashable) -> None:
        """Close an owner's connection; the next request opens another."""
        connection = self._connections.get(owner)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def stats(self) -> dict[str, int]:
        """Counters of all connections; `idle` is how many are kept for the next request now."""
        found = [connection.counters.as_dict() for connection in self._connections.values()]
        total = {name: sum(figures[name] for figures in found) for name in Counters().as_dict()}
        total["idle"] = sum(connection.stream is not None for connection in self._connections.values())
        return total


def with_path(endpoint: Endpoint, target: str) -> Endpoint:
    """The same place, another path (and query), which is in the form of a request target already."""
    return replace(endpoint, target=target.encode())


def client_tls(plugin: Configurable, problems: Problems, files: Mapping[str, str | None], **settings: Any) -> TlsConfig:
    """TLS settings of a client, tried once, so that `check` tells what is wrong.

    files: parameter -> path; which of them is what stands in `settings` (ca_path, cert, key).
    """
    config = TlsConfig(**settings)
    missing = False
    for name, path in files.items():
        if path is not None and not Path(path).exists():
            problems.error(f'{name} "{path}" does not exist', plugin.place_of(name))
            missing = True
    if not missing:
        try:
            config.context()
        except ConfError as error:
            problems.error(error.message, plugin.place, hint=error.hint)
    return config


def gzip_body(body: bytes, level: int) -> bytes:
    """One gzip member (RFC 1952) without name and time."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
