"""Source `syslog`: messages by UDP, TCP or TLS (https://docs.fluentd.org/input/syslog).

The tag is TAG.FACILITY.SEVERITY. message_length_limit is a limit of datagrams, as in Fluentd; messages of streams may
be longer, up to STREAM_LIMIT, for Fluentd takes them.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.conf.params import boolean, enum, integer, raw_section, section, size, string
from headrace.plugins.network import NetworkSource, StreamTransport
from headrace.plugins.network.datagrams import chomp
from headrace.plugins.network.frames import Counted, Delimited
from headrace.plugins.sections import parse_section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.plugins.patience import Groups

STREAM_LIMIT: Final = 1 << 20
"""Bytes of a message by TCP or TLS, unless message_length_limit is larger."""
FACILITIES: Final = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "at", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
SEVERITIES: Final = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
_PARSE: Final = {"with_priority": "true"}
_PRI: Final = re.compile(rb"^<([0-9]{1,9})>(.*)", re.MULTILINE)


class SyslogTransport(StreamTransport):
    """UDP, TCP or TLS."""

    protocol = enum(("udp", "tcp", "tls"), default="udp", doc="How messages come")


class SyslogInput(NetworkSource):
    """Takes syslog messages."""

    old_style: ClassVar[Mapping[str, str]] = {"parse": "syslog"}

    port = integer(default=5140, doc="Port to listen on")
    tag = string(doc="Prefix of the tags")
    protocol_type = enum(("tcp", "udp"), default=None, deprecated="write <transport tcp>", doc="UDP or TCP")
    frame_type = enum(
        ("traditional", "octet_count"),
        default="traditional",
        doc="By TCP: messages end with a delimiter, or are counted",
    )
    include_source_host = boolean(
        default=False, deprecated="use source_hostname_key or source_address_key", doc="Add the sender's address"
    )
    source_host_key = string(default="source_host", doc="Field for it")
    emit_unmatched_lines = boolean(default=False, doc="Emit messages that cannot be read, as TAG.unmatched")
    resolve_hostname = boolean(default=None, doc="Look up names of senders; source_hostname_key implies it")
    send_keepalive_packet = boolean(default=False, doc="Let the system probe silent connections (SO_KEEPALIVE)")
    severity_key = string(default=None, alias="priority_key", doc="Field that gets the severity")
    facility_key = string(default=None, doc="Field that gets the facility")
    message_length_limit = size(default=2048, doc="Bytes of a datagram; the rest of a longer one is cut off")
    delimiter = string(default="\n", doc="By TCP: what ends a message")
    transport = section(SyslogTransport, name="transport", argument="protocol", doc="UDP, TCP or TLS")
    parse_section = raw_section(name="parse", doc="The parser; absent: syslog, with_priority true")

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone."""
        super().validate(problems)
        given = {child.name for child in self.directive.block or ()} if self.directive else set()
        if "priority_key" in given:
            problems.warn("priority_key is deprecated: it is the severity", self.place_of("severity_key"))
        if self.include_source_host:
            if self.source_address_key is not None:
                problems.error("use source_address_key or include_source_host, not both", self.place)
            self.source_address_key = self.source_host_key
        if self.resolve_hostname is False and self.source_hostname_key is not None:
            problems.error("resolve_hostname must be true with source_hostname_key", self.place_of("resolve_hostname"))
        if self.protocol == "udp":
            keepalive = self.transport.send_keepalive_packet or self.send_keepalive_packet
            if keepalive:
                problems.error("send_keepalive_packet is for tcp and tls", self.place_of("send_keepalive_packet"))
        if not self.delimiter:
            problems.error('parameter "delimiter" must not be empty', self.place_of("delimiter"))
        if self.message_length_limit < 1:
            problems.error('parameter "message_length_limit" must be at least 1', self.place_of("message_length_limit"))

    @property
    def protocol(self) -> str:
        """How messages come."""
        return self.protocol_type or self.transport.protocol

    @property
    def kind_of_socket(self) -> str:
        """The kind of the socket."""
        return "udp" if self.protocol == "udp" else "tcp"

    def provision(self, context: Context) -> None:
        """Make the parser."""
        assert self.directive is not None
        given = parse_section(self.directive, self.parse_section, "syslog", _PARSE, context.lookup)
        self._parser = context.make("parser", given, default_type="syslog")
        self._own_pri = not getattr(self._parser, "with_priority", False)
        tags = [f"{self.tag}.{facility}.{severity}" for facility in FACILITIES for severity in SEVERITIES]
        self._tags = dict(enumerate(tags))

    async def start(self) -> None:
        """Take messages from now on."""
        await super().start()
        if self.protocol == "udp":
            buffer = self.transport.receive_buffer_size
            self.serve_datagrams(self.message_length_limit, buffer)
            return
        limit = max(self.message_length_limit, STREAM_LIMIT)
        delimiter = self.delimiter.encode("utf-8", "surrogateescape")
        frames = partial(Counted, limit) if self.frame_type == "octet_count" else partial(Delimited, delimiter, limit)
        keepalive = self.send_keepalive_packet or bool(self.transport.send_keepalive_packet)
        if self.protocol_type is not None:
            self.transport.protocol = self.protocol_type
        self.serve_streams(self.transport, frames, keepalive=keepalive, allowed=None)

    def convert(self, message: bytes, extra: Record | None, groups: Groups) -> None:
        """Parse a message; the priority says its tag."""
        if self.kind_of_socket == "udp":
            message = chomp(message)
        pri = None
        text = message
        if self._own_pri:
            match = _PRI.search(message)
            if match is None:
                self._unmatched(message, extra, groups, "no priority")
                return
            pri, text = int(match[1]), match[2]
        try:
            for time, record in self._parser.parse(text):
                if time is None or record is None:
                    self._unmatched(message, extra, groups)
                    continue
                level = record.pop("pri", None) if pri is None else pri
                self._event(level, time, record, extra, groups)
        except ValueError as error:
            self._unmatched(message, extra, groups, error)

    def _event(self, pri: object, time: int, record: Record, extra: Record | None, groups: Groups) -> None:
        level = pri if isinstance(pri, int) else 0
        tag = self._tags.get(level) or f"{self.tag}..{SEVERITIES[level & 7]}"
        if self.severity_key is not None:
            record[self.severity_key] = SEVERITIES[level & 7]
        if self.facility_key is not None:
            record[self.facility_key] = FACILITIES[level >> 3] if level >> 3 < len(FACILITIES) else None
        if extra is not None:
            record.update(extra)
        events = groups.get(tag)
        if events is None:
            groups[tag] = [(time, record)]
        else:
            events.append((time, record))

    def _unmatched(self, message: bytes, extra: Record | None, groups: Groups, why: object = "") -> None:
        self.not_matched(message, why)
        if self.emit_unmatched_lines:
            record = {"unmatched_line": message.decode("utf-8", "surrogateescape"), **(extra or {})}
            groups.setdefault(f"{self.tag}.unmatched", []).append((self.context.clock.wall_ns(), record))
