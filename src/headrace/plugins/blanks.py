"""Parameters that are given and empty, as `"#{ENV['NAME']}"` leaves them where the variable is not set: not given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.conf.params import Configurable


def drop_blanks(plugin: Configurable, *names: str) -> None:
    """Take the empty ones of these parameters as absent; for those whose default is None."""
    for name in names:
        if getattr(plugin, name) == "":
            plugin.__dict__[name] = None
