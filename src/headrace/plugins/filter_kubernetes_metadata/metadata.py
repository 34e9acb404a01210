"""Objects of the API -> the fields of `kubernetes`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    Fields = dict[str, Any]

_SCHEME: Final = re.compile(r"^[-_a-zA-Z0-9]+://")
CONTAINERS: Final = "containers"
"""Container's name -> its fields; they go into the record one container at a time."""
CREATED: Final = "creation_timestamp"
"""Of a namespace; only to compare."""


@dataclass(frozen=True)
class Wanted:
    """What is taken over. url: the value of master_url, None for none."""

    pod_labels: bool
    namespace_labels: bool
    annotations: Sequence[re.Pattern[str]]
    containers: bool
    owners: bool
    url: str | None

    def _annotations(self, meta: Fields) -> Fields:
        given = _map(meta.get("annotations"))
        return {key: given[key] for pattern in self.annotations for key in given if pattern.search(key)}

    def pod(self, found: Fields) -> Fields:
        """The fields of a pod. Raises ValueError when it is none."""
        meta, status, spec = (_map(found.get(name)) for name in ("metadata", "status", "spec"))
        if not meta.get("uid"):
            raise ValueError("an object without uid")
        fields = {
            "namespace_name": meta.get("namespace"),
            "pod_id": meta.get("uid"),
            "pod_name": meta.get("name"),
            "pod_ip": status.get("podIP"),
            CONTAINERS: self._containers(status),
            "host": spec.get("nodeName"),
        }
        if self.owners:
            owners = [_map(owner) for owner in meta.get("ownerReferences") or []]
            fields["ownerrefs"] = [{"kind": owner.get("kind"), "name": owner.get("name")} for owner in owners]
        fields = {name: value for name, value in fields.items() if value is not None}
        labels = _map(meta.get("labels")) if self.pod_labels else {}
        for name, value in (("labels", labels), ("annotations", self._annotations(meta))):
            if value:
                fields[name] = value
        if self.url is not None:
            fields["master_url"] = self.url
        return fields

    def _containers(self, status: Fields) -> Fields:
        made: Fields = {}
        for one in map(_map, status.get("containerStatuses") or []):
            name = one.get("name")
            made[str(name)] = {"container_id": _SCHEME.sub("", str(one.get("containerID") or ""))}
            if self.containers:
                made[str(name)] |= {"container_image": one.get("image"), "container_image_id": one.get("imageID")}
        return made

    def namespace(self, found: Fields) -> Fields:
        """The fields of a namespace. Raises ValueError when it is none."""
        meta = _map(found.get("metadata"))
        if not meta.get("uid"):
            raise ValueError("an object without uid")
        fields: Fields = {"namespace_id": meta["uid"], CREATED: meta.get("creationTimestamp")}
        labels = _map(meta.get("labels")) if self.namespace_labels else {}
        for name, value in (("namespace_labels", labels), ("namespace_annotations", self._annotations(meta))):
            if value:
                fields[name] = value
        return fields


def _map(value: Any) -> Fields:
    return value if isinstance(value, dict) else {}
