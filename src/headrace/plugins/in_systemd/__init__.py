"""The source `systemd`: entries of the journal.

    journalctl --output=export --follow --> export.py (bytes -> entries) --> input.py (events, cursor)

The journal is read by systemd's own program as a child process. It knows every version and compression of this
machine's journal, rotation and damage included, which a reader of our own would have to follow. cysystemd's wheels
carry a libsystemd of their own, which may be older than the journal's files, and read in threads, while a worker runs
Python in one; systemd-python has no wheels.

https://github.com/fluent-plugin-systemd/fluent-plugin-systemd
"""

from headrace.plugins.in_systemd.input import SystemdInput

__all__ = ["SystemdInput"]
