"""The base of tcp and udp: a <parse> section says what a message is, <extract> what of it is tag and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.conf.params import raw_section, section, string
from headrace.plugins.extract import Extract
from headrace.plugins.network.source import NetworkSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.plugins.patience import Groups


class PayloadSource(NetworkSource):
    """Messages of any form."""

    old_style: ClassVar[Mapping[str, str]] = {"parse": ""}

    tag = string(doc="Tag of the events")
    source_host_key = string(
        default=None, deprecated="write source_hostname_key", doc="Field that gets the name of the sender's machine"
    )
    parse_section = raw_section(name="parse", required=True, doc="The parser of the messages")
    extract = section(Extract, name="extract", doc="What of a record becomes its tag or its time")

    def validate(self, problems: Problems) -> None:
        """Take the old name of a parameter."""
        super().validate(problems)
        if self.source_hostname_key is None:
            self.source_hostname_key = self.source_host_key

    def provision(self, context: Context) -> None:
        """Make the parser."""
        assert self.parse_section is not None
        self._parser = context.make("parser", self.parse_section)
        if self._parser is not None:
            self.extract.let_extract(self._parser)

    async def start(self) -> None:
        """Make the functions of <extract>."""
        await super().start()
        self._tag_of = self.extract.tag_of()
        self._time_of = self.extract.time_of(self.context.clock.wall_ns)

    def convert(self, message: bytes, extra: Record | None, groups: Groups) -> None:
        """Parse a message."""
        try:
            for time, record in self._parser.parse(message):
                if record is None:
                    self.not_matched(message)
                    continue
                self._event(time, record, extra, groups)
        except ValueError as error:
            self.not_matched(message, error)

    def _event(self, time: int | None, record: Record, extra: Record | None, groups: Groups) -> None:
        tag = self._tag_of(record) if self._tag_of is not None else None
        if tag is None:
            tag = self.tag
        if time is None:
            if self._time_of is not None:
                time = self._time_of(record)
            if time is None:
                time = self.context.clock.wall_ns()
        if extra is not None:
            record.update(extra)
        events = groups.get(tag)
        if events is None:
            groups[tag] = [(time, record)]
        else:
            events.append((time, record))
