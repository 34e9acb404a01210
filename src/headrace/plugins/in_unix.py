"""Source `unix`: the Forward Protocol on a unix socket (https://docs.fluentd.org/input/unix).

As the source forward, without what belongs to networks: no heartbeats, no security, no TLS. MessagePack or JSON.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import integer, string
from headrace.pipeline.plugin import ListenSpec, Source
from headrace.plugins.in_forward.input import BACKLOG
from headrace.plugins.in_forward.intake import Terms
from headrace.plugins.in_forward.security import Security
from headrace.plugins.in_forward.server import ForwardServer
from headrace.plugins.transport import Transport

if TYPE_CHECKING:
    import logging

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.router import Router

PATH: Final = os.environ.get("FLUENT_SOCKET", "/var/run/fluent/fluent.sock")
"""Fluentd's default."""
_LONGEST: Final = 107
"""Bytes of a path that a socket can have (unix(7))."""


@dataclass
class _Terms:
    """What the server of the forward protocol asks its source for."""

    router: Router
    context: Context
    log: logging.Logger
    plugin_id: str
    listen: ListenSpec
    transport: Transport
    security: Security
    deny_keepalive: bool = False
    keeps_alive: bool = False
    resolve_hostname: bool | None = None
    source_hostname_key: str | None = None
    source_address_key: str | None = None
    chunk_size_limit: int | None = None
    chunk_size_warn_limit: int | None = None
    unfinished_size_limit: int = 256 << 20


class UnixInput(Source):
    """Takes events by a unix socket."""

    path = string(default=PATH, doc="The socket; its folder is made")
    backlog = integer(default=None, doc="Connections that may wait to be accepted; default: 1024")
    tag = string(default=None, doc="The tag of all events, in place of theirs")

    def validate(self, problems: Problems) -> None:
        """Check the path."""
        super().validate(problems)
        if not self.path or len(os.fsencode(self.path)) > _LONGEST:
            problems.error(f"a socket's path has 1 to {_LONGEST} bytes", self.place_of("path"))
        if self.backlog is not None and self.backlog < 1:
            problems.error('parameter "backlog" must be at least 1', self.place_of("backlog"))

    @property
    def listen(self) -> ListenSpec:
        """The socket."""
        return ListenSpec(f"unix:{self.path}", backlog=self.backlog or BACKLOG, place=self.place_of("path"))

    def listeners(self) -> list[ListenSpec]:
        """One socket."""
        return [self.listen]

    async def start(self) -> None:
        """Accept connections from now on."""
        terms = _Terms(
            self.router, self.context, self.log, self.plugin_id, self.listen, transport=Transport(), security=Security()
        )
        now = self.context.clock.wall_ns
        self._server = ForwardServer(terms, Terms(now, tag=self.tag, deduplicates=False))
        self._server.start()

    async def quiesce(self) -> None:
        """Accept nothing new, take what came."""
        if hasattr(self, "_server"):
            await self._server.quiesce()

    async def stop(self) -> None:
        """Cut what is still open."""
        if hasattr(self, "_server"):
            self._server.stop()

    def stats(self) -> dict[str, Any]:
        """Connections, messages, events; what was refused."""
        return self._server.stats() if hasattr(self, "_server") else {}
