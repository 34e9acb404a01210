"""Source `udp`: a payload in each datagram (https://docs.fluentd.org/input/udp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, boolean, enum, integer, section, size
from headrace.plugins.network.datagrams import chomp
from headrace.plugins.network.payloads import PayloadSource
from headrace.plugins.transport import check_socket_buffer

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record
    from headrace.plugins.patience import Groups


class UdpTransport(Configurable):
    """What the socket is like."""

    protocol = enum(("udp",), default="udp", doc="UDP")
    receive_buffer_size = size(default=None, doc="SO_RCVBUF of the socket")


class UdpInput(PayloadSource):
    """Takes payloads by UDP; <parse> says what is in them."""

    port = integer(default=5160, doc="Port to listen on")
    body_size_limit = size(default=None, deprecated="write message_length_limit", doc="Bytes of a datagram")
    message_length_limit = size(default=4096, doc="Bytes of a datagram; the rest of a longer one is cut off")
    remove_newline = boolean(default=True, doc="Remove the newline at the end of a payload")
    receive_buffer_size = size(default=None, doc="SO_RCVBUF of the socket")
    transport = section(UdpTransport, name="transport", argument="protocol", doc="What the socket is like")

    def validate(self, problems: Problems) -> None:
        """Check the limit."""
        super().validate(problems)
        if self.body_size_limit is not None:
            self.message_length_limit = self.body_size_limit
        check_socket_buffer(self, self.receive_buffer_size, problems)
        if self.message_length_limit < 1:
            problems.error('parameter "message_length_limit" must be at least 1', self.place_of("message_length_limit"))

    @property
    def kind_of_socket(self) -> str:
        """Udp."""
        return "udp"

    async def start(self) -> None:
        """Take payloads from now on."""
        await super().start()
        buffer = self.transport.receive_buffer_size or self.receive_buffer_size
        self.serve_datagrams(self.message_length_limit, buffer)

    def convert(self, message: bytes, extra: Record | None, groups: Groups) -> None:
        """Parse a payload."""
        super().convert(chomp(message) if self.remove_newline else message, extra, groups)
