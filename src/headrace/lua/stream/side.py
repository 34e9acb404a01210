"""What the VM of stream {} has, and what of http's it has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.lua.stream.client import ClientApi
from headrace.lua.vm import PRELUDE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.lua.api.tls import TlsApi
    from headrace.lua.side import Part
    from headrace.lua.vm import VM
    from headrace.stream.session import Session

_HTTP: Final = frozenset({"header", "request", "body", "reqsocket", "subrequest"})


def _prelude() -> tuple[str, ...]:
    files = [name for name in PRELUDE if name not in _HTTP]
    files.insert(files.index("context"), "session/session")
    files[-1:-1] = ("session/client", "session/last")
    return tuple(files)


class StreamSide:
    """Sessions. sessions: the live ones by handle."""

    name = "stream"
    prelude = _prelude()

    def __init__(self, sessions: Mapping[int, Session], _tls: TlsApi) -> None:
        self.client = ClientApi(sessions)
        self.parts: Sequence[Part] = (self.client,)

    def bind(self, vm: VM) -> None:
        """See lua.side.Side."""
        self.client.bytes_ready = vm.entry("client_bytes")
        self.client.flushed = vm.entry("flushed")
        self.client.sent = vm.entry("client_sent")
