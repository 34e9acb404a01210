"""The parts of one worker, in their order: what takes in starts last and stops first.

start: pipeline (its outputs, then its sources), then the gateway, which may log into the pipeline
stop:  the gateway answers what it has and closes, then the pipeline stops its sources and flushes
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Mapping

    from headrace.core.clock import Clock
    from headrace.pipeline.tap import Tap
    from headrace.supervisor.log import EngineLog
    from headrace.supervisor.program import Identity
    from headrace.topology.gateway import GatewayPart
    from headrace.topology.pipelines import PipelinePart

_GIVE_UP_TIME: Final = 2.0  # seconds for what had started, when another part could not


class Running:
    """What one worker runs (supervisor.program.Engine)."""

    def __init__(
        self, gateway: GatewayPart | None, pipeline: PipelinePart | None, identity: Identity, log: EngineLog
    ) -> None:
        self._gateway = gateway
        self._pipeline = pipeline
        self._identity = identity
        self._log = log
        self._clock: Clock | None = None

    async def start(self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket]) -> None:
        """Start all parts; when one fails, the others are stopped and its error is raised."""
        self._clock = clock
        try:
            await self._start(loop, clock, sockets)
        except BaseException:
            await self.stop(fast=True, within=_GIVE_UP_TIME)
            raise

    async def _start(self, loop: asyncio.AbstractEventLoop, clock: Clock, sockets: Mapping[str, socket.socket]) -> None:
        index = self._identity.index
        if self._pipeline is not None:
            self._log.write("info", f"starting worker pid={os.getpid()} ppid={os.getppid()} worker={index}")
            await self._pipeline.start(loop, clock, sockets)
        if self._gateway is not None:
            if self._pipeline is not None:
                self._gateway.connect_bridge(self._pipeline.router, loop, self._log)
            await self._gateway.start(loop, clock, sockets)
        if self._pipeline is not None:
            self._log.write("info", f"worker is now running worker={index}")

    async def stop(self, *, fast: bool, within: float) -> None:
        """Stop all parts within about `within` seconds in all.

        fast: the gateway's connections are closed at once; the pipeline flushes all the same, as in Fluentd.
        """
        assert self._clock is not None
        end = self._clock.now() + within
        if self._gateway is not None:
            await self._gateway.stop(0.0 if fast else within)
        if self._pipeline is not None:
            await self._pipeline.stop(max(end - self._clock.now(), 0.0), heir=self._identity.heir())
        if self._gateway is not None:
            self._gateway.detach()

    def stats(self) -> dict[str, Any]:
        """Figures by room."""
        figures: dict[str, Any] = {}
        if self._gateway is not None:
            figures.update(self._gateway.stats())
        if self._pipeline is not None:
            figures["pipeline"] = self._pipeline.stats()
        return figures

    def tap(self, query: Mapping[str, str]) -> Tap:
        """Look at live events of the pipeline: glob, side ("in", "out" or nothing), counts ("1": no events).

        Raises Error when there is nothing to look at.
        """
        if self._pipeline is None:
            raise Error("there is no pipeline to look into: only a gateway runs", kind="not_found")
        side = query.get("side") or None
        if side not in {None, "in", "out"}:
            raise Error(f'side must be "in" or "out", not "{side}"', kind="usage")
        return self._pipeline.tap(query.get("glob") or "*", side, counts_only=query.get("counts") == "1")

    def reopen_logs(self) -> None:
        """Open the gateway's logs anew."""
        if self._gateway is not None:
            self._gateway.reopen_logs()

    def flush(self) -> None:
        """Send what the pipeline has buffered, now."""
        if self._pipeline is not None:
            self._pipeline.flush()
