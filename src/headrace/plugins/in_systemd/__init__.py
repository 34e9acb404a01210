"""The source `systemd`: entries of the journal.

    journalctl --output=export --follow --> export.py (bytes -> entries) --> input.py (events, cursor)

The journal is read by systemd's own program as a child process. It knows every version and compression of the
journal's files, rotation and damage included, which a reader of our own would have to follow; the Python bindings
(systemd-python, cysystemd) are C extensions without wheels that need libsystemd's headers, and block the loop.

https://github.com/fluent-plugin-systemd/fluent-plugin-systemd
"""

from headrace.plugins.in_systemd.input import SystemdInput

__all__ = ["SystemdInput"]
