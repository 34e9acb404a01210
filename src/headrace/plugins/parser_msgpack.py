"""Parser `msgpack` (docs.fluentd.org, Parser Plugins, msgpack): maps, and arrays of maps, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from headrace.pipeline.event import unpacker
from headrace.plugins.parser_json import records_of
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    from headrace.plugins.parsing import Parsed


class MsgpackParser(RecordParser):
    """Reads msgpack."""

    def read(self, text: bytes) -> Parsed:
        """Parse whole values; a text that is malformed or cut short does not match, in none of its parts."""
        source = unpacker(text)
        values: list[Any] = []
        end = 0
        try:
            for value in source:
                # tell() after the loop would count the bytes of a value that is cut short.
                end = source.tell()
                if type(value) is list:
                    values += value
                else:
                    values.append(value)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
            return [(None, None)]
        if end != len(text):
            return [(None, None)]
        return records_of(values, self)
