"""Output `opensearch` (https://github.com/fluent/fluent-plugin-opensearch); see plugins/elastic/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import Configurable, array, boolean, enum, integer, section, string, time
from headrace.errors import Error
from headrace.plugins.elastic.output import ElasticOutput
from headrace.plugins.out_http.auth import INSTALL_HINT, AwsCredentials, AwsSigner, botocore_installed, find_credentials
from headrace.plugins.out_http.endpoint import parse

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.conf.params import Problems
    from headrace.pipeline.lanes import Lane
    from headrace.plugins.elastic.cluster import Cluster, Sign

_ASKED: Final = "it has no effect: a server that does not tell its version is asked again as <buffer> says"
_CHAIN: Final = "it is found in the environment, as AWS's own tools find it"
_REFRESH: Final = "it has no effect: credentials are replaced before they expire"


class AwsEndpoint(Configurable):
    """A domain of Amazon OpenSearch Service: requests to it are signed."""

    region = string(default="", doc="AWS region")
    url = string(default="", doc="URL of the domain")
    access_key_id = string(default="", doc="Access key; absent: AWS's own chain of credentials")
    secret_access_key = string(default="", secret=True, doc="Its secret")
    assume_role_arn = string(default=None, doc="Role to assume")
    aws_service_name = enum(("es", "aoss"), default="es", doc="es, or aoss for serverless")
    assume_role_session_name = string(default="fluentd", deprecated="it has no effect", doc="No effect")
    sts_credentials_region = string(default=None, deprecated="STS of region is asked", doc="No effect")
    refresh_credentials_interval = time(default=18000.0, deprecated=_REFRESH, doc="No effect")
    ecs_container_credentials_relative_uri = string(default=None, obsoleted=_CHAIN, doc="Refused")
    assume_role_web_identity_token_file = string(default=None, obsoleted=_CHAIN, doc="Refused")

    def validate(self, problems: Problems) -> None:
        """Check what signing needs."""
        for name in ("region", "url"):
            if not getattr(self, name):
                problems.error(f'parameter "{name}" is required', self.place, hint="in <endpoint>")
        if self.url:
            try:
                parse(self.url)
            except Error as error:
                problems.error(error.message, self.place_of("url"))
        if not botocore_installed():
            problems.error("<endpoint> needs botocore, which is not installed", self.place, hint=INSTALL_HINT)


class OpensearchOutput(ElasticOutput):
    """Sends records to OpenSearch."""

    time_parse_error_tag = string(
        default="opensearch_plugin.output.time.error", doc="Tag of error events about times nobody can read"
    )
    unrecoverable_error_types = array(
        default=["out_of_memory_error", "rejected_execution_exception"], doc="Errors after which a chunk is given up"
    )
    unrecoverable_record_types = array(default=["json_parse_exception"], doc="Errors after which a record is rejected")
    emit_error_label_event = boolean(default=True, doc="Rejected records are error events; false: they are dropped")
    log_os_400_reason = boolean(default=False, doc="Write to the log too why a record was rejected")
    verify_os_version_at_startup = boolean(
        default=True, doc="Ask for the server's version before the first request; false: default_opensearch_version"
    )
    default_opensearch_version = integer(default=1, doc="The version, where it is not asked for or not told")
    max_retry_get_os_version = integer(default=None, deprecated=_ASKED, doc="No effect")
    fail_on_detecting_os_version_retry_exceed = boolean(default=None, deprecated=_ASKED, doc="No effect")
    endpoint = section(AwsEndpoint, name="endpoint", doc="Amazon OpenSearch Service, in place of hosts")

    def _validate_hosts(self, problems: Problems) -> None:
        if self.endpoint.present and self.endpoint.url:
            self.__dict__["hosts"] = self.endpoint.url.rstrip("/")
        super()._validate_hosts(problems)

    def _type_name(self, version: int | None) -> str | None:
        return None if self.suppress_type_name or version is None or version >= 2 else "_doc"

    async def _version(self, cluster: Cluster, lane: Lane) -> int:
        # Serverless collections have no answer at /.
        if not self.verify_os_version_at_startup or self.endpoint.aws_service_name == "aoss":
            return self.default_opensearch_version
        return await cluster.major_version(lane.index, self.default_opensearch_version)

    def _record_errors(self) -> Collection[str]:
        return self.unrecoverable_record_types

    def _error_events(self) -> bool:
        return self.emit_error_label_event

    def _sign(self) -> Sign | None:
        endpoint, clock = self.endpoint, self.context.clock
        if not endpoint.present:
            return None
        find: Any = find_credentials
        if endpoint.access_key_id and endpoint.secret_access_key:

            async def find(_region: str, _role: str | None) -> AwsCredentials:
                return AwsCredentials(endpoint.access_key_id, endpoint.secret_access_key)

        signer = AwsSigner(
            endpoint.aws_service_name, endpoint.region, endpoint.assume_role_arn, lambda: clock.wall_ns() / 1e9, find
        )
        return signer.headers

    def _logs_rejected(self) -> bool:
        return self.log_os_400_reason
