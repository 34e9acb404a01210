"""Into a data stream: documents are created in the stream, which is made, with its template, when it is missing.

https://www.elastic.co/docs/manage-data/data-store/data-streams
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from headrace.conf.params import boolean, string
from headrace.plugins.elastic import templates
from headrace.plugins.elastic.output import ElasticOutput
from headrace.plugins.elastic.parameters import CREATE
from headrace.plugins.out_http.endpoint import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.lanes import Lane
    from headrace.plugins.elastic.cluster import Cluster

_STARTS: Final = "-_+."
_NEVER: Final = '\\/*?"<>| ,#:'


def name_fault(name: str) -> str | None:
    """What is wrong with the name of a data stream; None when nothing is."""
    if name in {".", ".."}:
        return "must not be . or .."
    if name.startswith(tuple(_STARTS)):
        return f"must not start with one of {_STARTS}"
    if any(char in name for char in _NEVER):
        return f"must not contain any of {_NEVER}"
    if name != name.lower():
        return "must be lowercase only"
    return "must not be longer than 255 bytes" if len(name.encode()) > 255 else None


class DataStreamOutput(ElasticOutput):
    """What both data stream outputs do."""

    needs_id: ClassVar[bool] = False

    data_stream_name = string(placeholders=True, doc="The data stream")
    data_stream_template_name = string(
        default=None, placeholders=True, doc="Its index template; default: the name and _template"
    )
    use_legacy_template = boolean(default=False, doc="The API of templates before 7.8 for template_file")

    def validate(self, problems: Problems) -> None:
        """A stream's documents are created, and have a time."""
        if self.write_operation not in {CREATE, "index"}:
            problems.error("a data stream takes write_operation create only", self.place_of("write_operation"))
        if self.logstash_format:
            problems.error("logstash_format names an index, not a data stream", self.place_of("logstash_format"))
        if self.target_index_key is not None:
            problems.error("target_index_key names an index, not a data stream", self.place_of("target_index_key"))
        own: Mapping[str, Any] = {"write_operation": CREATE, "include_timestamp": True, "include_index_in_url": True}
        self.__dict__.update(own)
        super().validate(problems)
        self._validate_names(problems)
        self.__dict__["index_name"] = self.data_stream_name

    def _stream_names(self) -> dict[str, str]:
        return {
            "data_stream_name": self.data_stream_name,
            "data_stream_template_name": self.data_stream_template_name or f"{self.data_stream_name}_template",
        }

    def _validate_names(self, problems: Problems) -> None:
        for parameter, name in self._stream_names().items():
            if not PLACEHOLDER.search(name) and (fault := name_fault(name)) is not None:
                problems.error(f"'{parameter}' {fault}: <{name}>", self.place_of(parameter))

    def _template(self, names: Mapping[str, str]) -> dict[str, Any]:
        """The template of a stream without template_file."""
        return {"index_patterns": [f"{names['data_stream_name']}*"], "data_stream": {}}

    async def _before(self, cluster: Cluster, lane: Lane, names: Mapping[str, str]) -> None:
        """What must be there before the template. Raises Error."""

    async def _prepare(self, cluster: Cluster, chunk: Chunk, lane: Lane) -> None:
        names = {key: chunk.extract_placeholders(text) for key, text in self._stream_names().items()}
        names["data_stream_name"] = names["data_stream_name"].lower()
        await self._templates.once(
            f"stream {names['data_stream_name']}", partial(self._make_stream, cluster, chunk, lane, names)
        )
        await super()._prepare(cluster, chunk, lane)

    async def _make_stream(self, cluster: Cluster, chunk: Chunk, lane: Lane, names: Mapping[str, str]) -> None:
        path = "/_data_stream/" + quote(names["data_stream_name"], safe="")
        if await templates.exists(cluster, lane.index, path):
            return
        self.log.info("data stream %s does not exist and is made", names["data_stream_name"])
        await self._before(cluster, lane, names)
        if self.template_file is None:
            template = "/_index_template/" + quote(names["data_stream_template_name"], safe="")
            if not await templates.exists(cluster, lane.index, template):
                await templates.put(cluster, lane.index, template, json.dumps(self._template(names)).encode())
        else:
            await super()._prepare(cluster, chunk, lane)
        await templates.put(cluster, lane.index, path)
