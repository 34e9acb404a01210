"""Parser `msgpack` (docs.fluentd.org, Parser Plugins, msgpack): maps, and arrays of maps, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.flat import unpack_flat
from headrace.plugins.parser_json import records_of
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.plugins.parsing import Parsed


class MsgpackParser(RecordParser):
    """Reads msgpack."""

    def read(self, text: bytes) -> Parsed:
        """Parse whole values; a text that is malformed or cut short does not match, in none of its parts."""
        try:
            values = unpack_flat(text)
        except ValueError:
            return [(None, None)]
        return records_of(values, self)
