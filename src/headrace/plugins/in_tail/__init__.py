"""Source `tail` (docs.fluentd.org, Input Plugins, tail): files that others append to.

planner.py, patterns.py   which files the configuration names
keeper.py                 which files are followed: found, renamed, rotated, let go of
search.py                 when files are looked for
places.py, history.py     where they begin, and how far they were read
positions.py              Fluentd's position file
signals.py, watch.py      who has something new: inotify, or a timer
reader.py, outlet.py      a block of one file by turns -> lines -> events -> the buffers -> its position
lines.py, encodings.py    bytes -> lines
groups.py                 how much may be read
handles.py                open files, at most so many
tailed.py                 one file
input.py                  parameters, start, end, the hand-over between two generations of workers
"""

from headrace.plugins.in_tail.input import TailInput

__all__ = ["TailInput"]
