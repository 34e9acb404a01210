"""Parser `pairs`: lines of `key: value; key: value`."""

from headrace.conf.params import string
from headrace.pipeline.plugin import Parser


class PairsParser(Parser):
    """Splits a line into pairs."""

    name = "pairs"

    delimiter = string(default=";", doc="What stands between two pairs")

    def parse(self, text):
        record = {}
        for pair in text.decode(errors="replace").split(self.delimiter):
            key, colon, value = pair.partition(":")
            if not colon:
                yield None, None  # it does not match: the plugin that called decides what becomes of it
                return
            record[key.strip()] = value.strip()
        yield None, record  # no time in it: the event gets the present one
