"""What a VM serves: the requests of http, or the sessions of stream (stream/side.py).

As in OpenResty each has a VM of its own, with its own globals, modules and dictionaries: the same name may stand for
different things in the two, and what one of them does not have is nil there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.lua.api.bodies import BodiesApi
from headrace.lua.api.downstream import DownstreamApi
from headrace.lua.api.headers import HeadersApi
from headrace.lua.api.output import OutputApi
from headrace.lua.api.request import RequestApi
from headrace.lua.api.subrequests import SubrequestApi
from headrace.lua.vm import PRELUDE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.lua.api.tls import TlsApi
    from headrace.lua.vm import VM


class Part(Protocol):
    """A part of the host."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package api."""
        ...


class Side(Protocol):
    """name: what ngx.config.subsystem says. prelude: the files of the VM. parts: the functions that they call."""

    @property
    def name(self) -> str: ...  # noqa: D102 - see the class

    @property
    def prelude(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def parts(self) -> Sequence[Part]: ...  # noqa: D102

    def bind(self, vm: VM) -> None:
        """Take the entries of the VM."""
        ...


class HttpSide:
    """Requests. requests: the live ones by handle."""

    name = "http"
    prelude = PRELUDE

    def __init__(self, requests: Mapping[int, Any], tls: TlsApi) -> None:
        self._output = OutputApi(requests)
        self._request = RequestApi(requests)
        headers = HeadersApi(requests)
        self._subrequests = SubrequestApi(requests, headers)
        self._downstream = DownstreamApi(requests, tls)
        self.parts: Sequence[Part] = (
            self._output,
            self._request,
            headers,
            self._subrequests,
            self._downstream,
            BodiesApi(requests),
        )

    def bind(self, vm: VM) -> None:
        """See Side."""
        self._subrequests.ended = vm.entry("subrequest_ended")
        self._output.flushed = vm.entry("flushed")
        self._request.body_ready = vm.entry("body_ready")
        self._downstream.bytes_ready = vm.entry("body_bytes")
