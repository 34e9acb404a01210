"""The id of a chunk in a header field, for receivers that keep a chunk once however often it is sent.

    X-Headrace-Chunk: 0123456789abcdef0123456789abcdef      in a request: the id of the chunk that is its body
    Headrace-Dedupe: 1                                      in an answer: this receiver knows such ids

A chunk whose answer was lost is sent again, after a restart of this process too, and a receiver that knows ids
drops what it has. So the very first request must name its chunk: it may repeat the last one of the process before.
An endpoint therefore sees the field until an answer of it, a success, comes without Headrace-Dedupe; from then on
it sees nothing that Fluentd would not send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.core.http1.client import Response
    from headrace.plugins.out_http.endpoint import Endpoint

    Identity = tuple[str, str, int]

FIELD: Final = b"X-Headrace-Chunk"
ANSWER: Final = b"headrace-dedupe"
MODES: Final = ("auto", "true", "false")

_KEPT: Final = 1024


class Peers:
    """What the endpoints of an output have said. mode: one of MODES."""

    __slots__ = ("_mode", "_said")

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._said: dict[Identity, tuple[Response, bool]] = {}

    def line(self, endpoint: Endpoint, chunk_id: bytes) -> bytes:
        """The header line for a request, or nothing."""
        if self._mode != "true":
            if self._mode == "false":
                return b""
            said = self._said.get(endpoint.identity)
            if said is not None and not said[1]:
                return b""
        return b"%b: %b\r\n" % (FIELD, chunk_id.hex().encode())

    def learn(self, endpoint: Endpoint, response: Response) -> None:
        """Note what a successful answer says."""
        if self._mode != "auto":
            return
        said = self._said.get(endpoint.identity)
        if said is not None and said[0] is response:
            return  # equal answers are one object, see core.http1.client
        if len(self._said) >= _KEPT:
            self._said.clear()
        self._said[endpoint.identity] = (response, response.header(ANSWER) == b"1")

    @property
    def knowing(self) -> int:
        """Endpoints that know ids."""
        return sum(knows for _response, knows in self._said.values())
