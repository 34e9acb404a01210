"""The fields of a journal's entry, renamed: <entry> of the source `systemd`, and the filter `systemd_entry`.

https://github.com/fluent-plugin-systemd/fluent-plugin-systemd#filter-plugin-configuration
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conf.params import Configurable, boolean, hash_
from headrace.plugins.ruby_text import to_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.pipeline.event import Record

    Change = Callable[[Record], Record]


class EntryFields(Configurable):
    """How fields are called."""

    field_map = hash_(default={}, doc="Field -> its new name, or a list of them; what meets in one name is joined")
    field_map_strict = boolean(default=False, doc="Only what field_map names")
    fields_strip_underscores = boolean(default=False, doc="Remove underscores before names that are not mapped")
    fields_lowercase = boolean(default=False, doc="Names that are not mapped in small letters")

    def validate(self, problems: Problems) -> None:
        """Check the names."""
        super().validate(problems)
        place = self.place_of("field_map")
        self._sources: dict[str, list[str]] = {}
        for source, target in self.field_map.items():
            names = target if isinstance(target, list) else [target]
            if not all(isinstance(name, str) for name in names):
                problems.error("`field_map` values must be strings or an array of strings", place)
                return
            for name in names:
                self._sources.setdefault(name, []).append(source)
        if self.field_map_strict and not self.field_map:
            problems.warn("`field_map_strict` set to true with empty `field_map`, expect no fields", self.place)

    def change(self) -> Change | None:
        """The function of a record; None when nothing is to be changed."""
        if not (self.field_map or self.field_map_strict or self.fields_strip_underscores or self.fields_lowercase):
            return None
        return self._renamed

    def _renamed(self, record: Record) -> Record:
        made: Record = {}
        for name, sources in self._sources.items():
            values = [record[source] for source in sources if record.get(source) is not None]
            if values:
                made[name] = _joined(values)
        if self.field_map_strict:
            return made
        strip, lower, mapped = self.fields_strip_underscores, self.fields_lowercase, self.field_map
        for key, value in record.items():
            if key in mapped:
                continue
            name = key
            if isinstance(name, str):
                name = name.lstrip("_") if strip else name
                name = name.lower() if lower else name
            made[name] = _joined([one for one in (value, made.get(name)) if one is not None])
        return made


def _joined(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else " ".join([to_s(value) for value in values])
