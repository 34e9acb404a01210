"""Formatter `pairs`: a record as one line of `key: value; key: value`."""

from headrace.conf.params import string
from headrace.pipeline.plugin import Formatter


class PairsFormatter(Formatter):
    """Joins the fields of a record."""

    name = "pairs"

    delimiter = string(default=";", doc="What stands between two pairs")

    def format(self, tag, time, record):
        return f"{self.delimiter} ".join(f"{key}: {value}" for key, value in record.items()).encode() + b"\n"
