"""What is wrong with a configuration, collected so that one check reports everything at once."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal

from headrace.errors import ConfError, Place

if TYPE_CHECKING:
    from collections.abc import Iterable


class Problems:
    """What is wrong with a configuration: errors end `check` and `run`, warnings do not.

    unknown_is_error: False in headrace-fluentd, where an unknown parameter is a warning as in Fluentd.
    """

    def __init__(self, *, unknown_is_error: bool = True) -> None:
        self.errors: list[ConfError] = []
        self.warnings: list[ConfError] = []
        self.unknown_is_error = unknown_is_error
        self._unread = 0

    def error(self, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Record an error."""
        self.errors.append(ConfError(message, place, hint=hint))

    def warn(self, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Record a warning."""
        self.warnings.append(ConfError(message, place, hint=hint))

    def alert(self, message: str, place: Place | None = None) -> None:
        """Record a warning that nginx gives as an alert: it should not stay so."""
        self.warnings.append(ConfError(message, place, level="alert"))

    def unknown(self, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Record something that nobody reads: an error, or a warning where Fluentd's rule holds."""
        (self.error if self.unknown_is_error else self.warn)(message, place, hint=hint)
        self._unread += self.unknown_is_error

    @property
    def broken(self) -> int:
        """How many errors there are that leave something without its value: all but those about unknown things.

        What is built on a part that has none of these can be judged, though the configuration will not run.
        """
        return len(self.errors) - self._unread

    def findings(self) -> list[tuple[Literal["error", "warning"], ConfError]]:
        """Everything, by file and line, each once; what has no place comes last."""
        found: dict[str, tuple[Literal["error", "warning"], ConfError]] = {}
        for error in self.errors:
            found.setdefault(str(error), ("error", error))
        for warning in self.warnings:
            found.setdefault(str(warning), ("warning", warning))
        return sorted(found.values(), key=_by_place)

    def raise_first(self) -> None:
        """Raise the first error, if there is one."""
        if self.errors:
            raise self.errors[0]


def _by_place(finding: tuple[str, ConfError]) -> tuple[bool, str, int]:
    place = finding[1].place
    return (place is None, place.file if place else "", place.line if place else 0)


def near_miss(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that is nearest to `name`, or "" when none is near."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f'did you mean "{found[0]}"?' if found else ""
