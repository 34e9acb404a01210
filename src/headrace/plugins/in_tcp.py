"""Source `tcp`: payloads by TCP or TLS, one after each delimiter (https://docs.fluentd.org/input/tcp)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.conf.params import boolean, integer, section, size, string
from headrace.plugins.network import StreamTransport
from headrace.plugins.network.clients import Security
from headrace.plugins.network.frames import Delimited
from headrace.plugins.network.payloads import PayloadSource

if TYPE_CHECKING:
    from headrace.conf.params import Problems

MOST: Final = 32 << 20
"""Bytes of a message where message_length_limit does not say."""


class TcpInput(PayloadSource):
    """Takes payloads by TCP; <parse> says what is in them."""

    port = integer(default=5170, doc="Port to listen on")
    message_length_limit = size(default=None, doc="Bytes of a message; a longer one is dropped. Absent: 32m")
    delimiter = string(default="\n", doc="What ends a message")
    send_keepalive_packet = boolean(default=False, doc="Let the system probe silent connections (SO_KEEPALIVE)")
    transport = section(StreamTransport, name="transport", argument="protocol", doc="Plain TCP or TLS")
    security = section(Security, name="security", doc="Who may send; absent: everybody")

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        if not self.delimiter:
            problems.error('parameter "delimiter" must not be empty', self.place_of("delimiter"))
        if self.message_length_limit is not None and self.message_length_limit < 1:
            problems.error('parameter "message_length_limit" must be at least 1', self.place_of("message_length_limit"))

    async def start(self) -> None:
        """Take payloads from now on."""
        await super().start()
        delimiter = self.delimiter.encode("utf-8", "surrogateescape")
        self.serve_streams(
            self.transport,
            partial(Delimited, delimiter, self.message_length_limit or MOST),
            keepalive=self.send_keepalive_packet or bool(self.transport.send_keepalive_packet),
            allowed=self.security.allows() if self.security.directive is not None else None,
        )
