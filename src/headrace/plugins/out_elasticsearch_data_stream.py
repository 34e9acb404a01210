"""Output `elasticsearch_data_stream` (https://github.com/uken/fluent-plugin-elasticsearch); see plugins/elastic/."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.conf.params import boolean, string
from headrace.plugins.elastic import templates
from headrace.plugins.elastic.data_stream import DataStreamOutput
from headrace.plugins.out_elasticsearch import ElasticsearchOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.lanes import Lane
    from headrace.plugins.elastic.cluster import Cluster


class ElasticsearchDataStreamOutput(DataStreamOutput, ElasticsearchOutput):
    """Sends records to a data stream of Elasticsearch."""

    data_stream_ilm_name = string(
        default=None, placeholders=True, doc="Its lifecycle policy; default: the name and _policy"
    )
    data_stream_ilm_policy = string(default=None, doc="The policy, JSON; default: roll over at 50 GB or 30 days")
    data_stream_ilm_policy_overwrite = boolean(default=False, doc="Put the policy over one that is there")
    data_stream_template_use_index_patterns_wildcard = boolean(
        default=True, doc="The template is for all streams whose name begins so"
    )

    def validate(self, problems: Problems) -> None:
        """Check the policy too."""
        super().validate(problems)
        if self.data_stream_ilm_policy is not None:
            try:
                json.loads(self.data_stream_ilm_policy)
            except ValueError as error:
                place = self.place_of("data_stream_ilm_policy")
                problems.error(f'parameter "data_stream_ilm_policy" is no JSON: {error}', place)

    def _stream_names(self) -> dict[str, str]:
        name = self.data_stream_ilm_name or f"{self.data_stream_name}_policy"
        return {**super()._stream_names(), "data_stream_ilm_name": name}

    def _template(self, names: Mapping[str, str]) -> dict[str, Any]:
        wildcard = "*" if self.data_stream_template_use_index_patterns_wildcard else ""
        return {
            "index_patterns": [names["data_stream_name"] + wildcard],
            "data_stream": {},
            "template": {"settings": {"index.lifecycle.name": names["data_stream_ilm_name"]}},
        }

    async def _before(self, cluster: Cluster, lane: Lane, names: Mapping[str, str]) -> None:
        path = "/_ilm/policy/" + quote(names["data_stream_ilm_name"], safe="")
        if self.data_stream_ilm_policy_overwrite or not await templates.exists(cluster, lane.index, path):
            policy = self.data_stream_ilm_policy or json.dumps(templates.DEFAULT_POLICY)
            await templates.put(cluster, lane.index, path, policy.encode())
