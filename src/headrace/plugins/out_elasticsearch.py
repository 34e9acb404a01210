"""Output `elasticsearch` (https://github.com/uken/fluent-plugin-elasticsearch); see plugins/elastic/."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from headrace.conf.params import any_, array, boolean, enum, hash_, integer, string
from headrace.plugins.blanks import drop_blanks
from headrace.plugins.elastic.output import ElasticOutput
from headrace.plugins.elastic.parameters import ElasticParameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.lanes import Lane
    from headrace.plugins.elastic.cluster import Cluster

_ASKED: Final = "it has no effect: a server that does not tell its version is asked again as <buffer> says"


class ElasticsearchOutput(ElasticOutput):
    """Sends records to Elasticsearch."""

    not_built: ClassVar[Mapping[str, str]] = {
        **ElasticParameters.not_built,
        "enable_ilm": "set the policy up in the cluster, or use elasticsearch_data_stream",
        "rollover_index": "make the alias in the cluster and name it in index_name",
        "deflector_alias": "make the alias in the cluster and name it in index_name",
        "ilm_policy": "set the policy up in the cluster",
        "ilm_policies": "set the policies up in the cluster",
        "ilm_policy_overwrite": "set the policy up in the cluster",
    }

    cloud_id = string(default=None, doc="Id of an Elastic Cloud deployment, in place of hosts")
    cloud_auth = string(default=None, secret=True, doc="user:password for it")
    api_key = string(default=None, secret=True, doc="Key for the header Authorization: ApiKey")
    type_name = string(default="fluentd", placeholders=True, doc="_type of documents, before Elasticsearch 7")
    target_type_key = string(
        default=None,
        deprecated="Elasticsearch 7 and later take no types",
        doc="Field that names the _type; it is removed",
    )
    unrecoverable_error_types = array(
        default=["out_of_memory_error", "es_rejected_execution_exception"],
        doc="Errors after which a chunk is given up",
    )
    log_es_400_reason = boolean(default=False, doc="Write to the log too why a record was rejected")
    content_type_ = enum(
        ("application/json", "application/x-ndjson"),
        default="application/x-ndjson",
        key="content_type",
        doc="Content-Type of bulk requests",
    )
    verify_es_version_at_startup = boolean(
        default=True, doc="Ask for the server's version before the first request; false: default_elasticsearch_version"
    )
    default_elasticsearch_version = integer(default=5, doc="The version, where it is not asked for or not told")
    max_retry_get_es_version = integer(default=None, deprecated=_ASKED, doc="No effect")
    fail_on_detecting_es_version_retry_exceed = boolean(default=None, deprecated=_ASKED, doc="No effect")
    enable_ilm = boolean(default=False, doc="Refused")
    ilm_policy_id = any_(default=None, deprecated="it belongs to enable_ilm, which is not here", doc="No effect")
    ilm_policy = hash_(default={}, doc="Refused")
    ilm_policies = hash_(default={}, doc="Refused")
    ilm_policy_overwrite = boolean(default=False, doc="Refused")
    rollover_index = boolean(default=False, doc="Refused")
    deflector_alias = string(default=None, doc="Refused")

    def _validate_cloud(self, problems: Problems) -> None:
        drop_blanks(self, "cloud_id", "cloud_auth", "api_key")
        if self.cloud_id is not None:
            self._take_cloud(self.cloud_id, self.cloud_auth, problems)

    async def start(self) -> None:
        """Know how requests are labelled."""
        await super().start()
        self.__dict__["content_type"] = self.content_type_

    def _type_name(self, version: int | None) -> str | None:
        if version is None or version >= 8 or (self.suppress_type_name and version >= 7):
            return None
        return "_doc" if version == 7 else self.type_name

    async def _version(self, cluster: Cluster, lane: Lane) -> int:
        if not self.verify_es_version_at_startup:
            return self.default_elasticsearch_version
        return await cluster.major_version(lane.index, self.default_elasticsearch_version)

    def _logs_rejected(self) -> bool:
        return self.log_es_400_reason
