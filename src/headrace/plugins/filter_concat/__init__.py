"""Filter `concat`.

- filter.py      the parameters and the stream of events
- modes.py       when a text is whole: lines, patterns, marks of container runtimes
- streams.py     the texts that are not whole yet, one for each stream
"""

from headrace.plugins.filter_concat.filter import ConcatFilter

__all__ = ["ConcatFilter"]
