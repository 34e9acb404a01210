"""Filter `mask`: hides the values of some fields."""

from headrace.conf.params import array
from headrace.pipeline.plugin import Filter


class MaskFilter(Filter):
    """Hides values."""

    name = "mask"

    keys = array(doc="Fields whose values are hidden")

    def filter(self, tag, time, record):
        hidden = [key for key in self.keys if key in record]
        return {**record, **dict.fromkeys(hidden, "***")} if hidden else record
