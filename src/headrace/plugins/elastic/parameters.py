"""The parameters of the Elasticsearch and OpenSearch outputs, and everything about them that `check` can find out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import Configurable, any_, array, boolean, enum, hash_, integer, section, size, string, time
from headrace.conf.values import as_string
from headrace.core.tls_config import TlsConfig
from headrace.errors import Error
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.plugin import Output
from headrace.plugins.blanks import drop_blanks
from headrace.plugins.elastic.cluster import cloud_host, parse_hosts
from headrace.plugins.http_lane import client_tls
from headrace.plugins.out_http.endpoint import PLACEHOLDER
from headrace.plugins.out_http.proxy import ProxyChoice
from headrace.plugins.out_http.request import FRAMING, is_field_name, is_field_value
from headrace.plugins.time_parse import strptime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems

INDEX, CREATE, UPDATE, UPSERT = "index", "create", "update", "upsert"
OPERATIONS: Final = (INDEX, CREATE, UPDATE, UPSERT)
LEVELS: Final = {"no_compression": 0, "best_speed": 1, "best_compression": 9, "default_compression": 6}
VERSIONS: Final = ("SSLv23", "TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3")
_RUBY: Final = "it has no effect: it is about the Ruby client"
_RETRIES: Final = "it has no effect: what cannot be asked or sent is tried again as <buffer> says"
_NODES: Final = "the hosts are those that are configured; one that fails is left out for resurrect_after"

_MAY_BE_BLANK: Final = (
    "user", "password", "path", "hosts", "ca_file", "client_cert", "client_key", "client_key_pass", "time_key",
    "time_key_format", "target_index_key", "id_key", "parent_key", "routing_key", "pipeline", "retry_tag",
    "template_name", "template_file", "remove_keys", "selector_class_name",
)  # fmt: skip


class Metadata(Configurable):
    """What is added to each record."""

    include_chunk_id = boolean(default=False, doc="Add the id of the chunk")
    chunk_id_key = string(default="chunk_id", doc="Field that gets it")


class ElasticParameters(Output):
    """What both outputs take."""

    buffer_defaults: ClassVar[Mapping[str, str]] = {"timekey_use_utc": "true"}
    default_chunk_keys = ("tag",)
    old_style: ClassVar[Mapping[str, str]] = {"buffer": "tag"}

    not_built: ClassVar[Mapping[str, str]] = {
        "target_index_affinity": "it asks the cluster about each chunk",
        "ignore_exceptions": "it names classes of Ruby",
    }
    """Parameters that are refused unless they say no, with the reason or the way around."""

    host = string(default="localhost", placeholders=True, doc="Host to send to")
    port = integer(default=9200, doc="Port of host, and of hosts that name none")
    hosts = string(
        default=None, placeholders=True, doc="Hosts to send to in turn: host:port or URLs, with commas between"
    )
    user = string(default=None, doc="User for HTTP Basic; %{...} around one with special characters")
    password = string(default=None, secret=True, doc="Password for HTTP Basic; likewise")
    path = string(default=None, doc="Path before that of each request, for a proxy in front of the cluster")
    scheme = enum(("https", "http"), default="http", doc="How to speak to hosts that are no URLs")
    ssl_verify = boolean(default=True, doc="Verify the server's certificate")
    ssl_version = enum(VERSIONS, default=None, deprecated="use ssl_min_version and ssl_max_version", doc="No effect")
    ssl_min_version = enum(VERSIONS, default=None, doc="Oldest version of TLS (TLSv1_2)")
    ssl_max_version = enum(VERSIONS, default=None, doc="Newest version of TLS (TLSv1_3)")
    ca_file = string(default=None, doc="PEM file of the CAs to trust; absent: the system's")
    client_cert = string(default=None, doc="PEM file of the client certificate")
    client_key = string(default=None, doc="PEM file of its key")
    client_key_pass = string(default=None, secret=True, doc="Passphrase of the key")
    custom_headers = hash_(default={}, value_type=as_string, doc="Header fields to add")
    request_timeout = time(default=5.0, doc="Seconds to connect, and between the parts of an answer")
    resurrect_after = time(default=60.0, doc="Seconds for which a host that failed is not asked, while others answer")
    selector_class_name = string(
        default=None, doc="Fluent::Plugin::ElasticseatchFallbackSelector: the first host that answers, not each in turn"
    )
    reconnect_on_error = boolean(default=False, doc="Open a new connection after an answer that is an error too")
    with_transporter_log = boolean(default=False, doc="Log each request and its status")

    index_name = string(default="fluentd", placeholders=True, doc="The index")
    logstash_format = boolean(default=False, doc="An index for each day: logstash_prefix-YYYY.MM.DD")
    logstash_prefix = string(default="logstash", placeholders=True, doc="Its first part")
    logstash_prefix_separator = string(default="-", doc="What stands between")
    logstash_dateformat = string(default="%Y.%m.%d", doc="Its second part, as strftime has it")
    utc_index = boolean(default=True, doc="The date of the index in UTC; false: in local time")
    include_timestamp = boolean(default=False, doc="Add @timestamp without logstash_format too")
    time_key = string(default=None, doc="Field with the event's time, for @timestamp and the index")
    time_key_format = string(default=None, doc="Its format, as strptime has it")
    time_precision = integer(default=9, doc="Digits of the fraction in @timestamp")
    time_key_exclude_timestamp = boolean(default=False, doc="Add no @timestamp where time_key is there")
    time_parse_error_tag = string(
        default="Fluent::ElasticsearchOutput::TimeParser.error", doc="Tag of error events about times nobody can read"
    )
    target_index_key = string(default=None, doc="Field that names the index, a.b for a nested one; it is removed")
    include_index_in_url = boolean(default=False, doc="A request for each index, with it in the URL")
    id_key = string(default=None, doc="Field with the document's _id")
    parent_key = string(default=None, doc="Field with its _parent")
    routing_key = string(default=None, doc="Field with its routing")
    write_operation = enum(OPERATIONS, default=INDEX, doc="What is done with a document")
    emit_error_for_missing_id = boolean(
        default=False, doc="An operation that needs an _id and has none is an error event; false: it is dropped"
    )
    pipeline = string(default=None, placeholders=True, doc="The ingest pipeline")
    include_tag_key = boolean(default=False, doc="Add the tag")
    tag_key = string(default="tag", doc="Field that gets it")
    remove_keys = string(default=None, doc="Fields to remove, with commas between")
    remove_keys_on_update = string(default="", doc="Fields that an update does not change")
    remove_keys_on_update_key = string(default=None, doc="Field of the record that lists such fields")
    flatten_hashes = boolean(default=False, doc="Make nested fields top-level ones")
    flatten_hashes_separator = string(default="_", doc="What stands between their names")
    suppress_doc_wrap = boolean(default=False, doc="Send updates without doc around them")
    suppress_type_name = boolean(default=False, doc="Send no _type")
    metadata = section(Metadata, name="metadata", doc="What is added to each record")

    bulk_message_request_threshold = size(default=-1, doc="Bytes after which a request is sent; -1: one for a chunk")
    compression_level = enum(tuple(LEVELS), default="no_compression", doc="gzip of the requests")
    unrecoverable_error_types = array(default=["out_of_memory_error"], doc="Errors after which a chunk is given up")
    retry_tag = string(
        default=None, doc="Emit records to be tried again with this tag; absent: this output keeps and retries them"
    )

    template_name = string(default=None, placeholders=True, doc="Name of an index template to install")
    template_file = string(default=None, doc="JSON file of it")
    templates = hash_(default=None, value_type=as_string, doc="Name -> file of more templates")
    template_overwrite = boolean(default=False, doc="Install over one that is there")
    customize_template = hash_(
        default=None, value_type=as_string, placeholders=True, doc="Texts in the file -> what to put in their place"
    )
    use_legacy_template = boolean(default=True, doc="The API of templates before 7.8")
    max_retry_putting_template = integer(default=10, doc="Failures after which fail_on_putting_... decides")
    fail_on_putting_template_retry_exceed = boolean(
        default=True, doc="Send nothing without the template; false: after max_retry_putting_template failures, do"
    )
    truncate_caches_interval = time(default=None, doc="Seconds after which templates are looked for again")

    reload_connections = boolean(default=False, doc=f"true: a notice; {_NODES}")
    reload_on_failure = boolean(default=False, doc=f"true: a notice; {_NODES}")
    reload_after = integer(default=-1, deprecated=f"it has no effect: {_NODES}", doc="No effect")
    sniffer_class_name = string(default=None, deprecated=f"it has no effect: {_NODES}", doc="No effect")
    http_backend = enum(("excon", "typhoeus"), default=None, deprecated=_RUBY, doc="No effect")
    http_backend_excon_nonblock = boolean(default=None, deprecated=_RUBY, doc="No effect")
    validate_client_version = boolean(default=None, deprecated=_RUBY, doc="No effect")
    prefer_oj_serializer = boolean(default=None, deprecated=_RUBY, doc="No effect")
    catch_transport_exception_on_retry = boolean(default=None, deprecated=_RETRIES, doc="No effect")
    exception_backup = boolean(default=None, deprecated="it belongs to ignore_exceptions", doc="No effect")
    ignore_exceptions = array(default=None, doc="Refused: it names classes of Ruby")
    target_index_affinity = boolean(default=None, doc="Refused")
    index_date_pattern = any_(default=None, deprecated="it belongs to rollover_index, which is not here", doc="-")
    index_separator = any_(default=None, deprecated="it belongs to rollover_index, which is not here", doc="-")
    application_name = any_(default=None, deprecated="it belongs to rollover_index, which is not here", doc="-")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        drop_blanks(self, *_MAY_BE_BLANK)
        self._refuse(problems)
        for name in ("reload_connections", "reload_on_failure"):
            if getattr(self, name):
                problems.warn(f"{name}: the list of nodes is not asked for", self.place_of(name), hint=_NODES)
        if self.selector_class_name not in {
            None,
            "Fluent::Plugin::ElasticseatchFallbackSelector",
            "Fluent::Plugin::ElasticsearchFallbackSelector",
            "Fluent::Plugin::OpenSearchFallbackSelector",
        }:
            problems.error("selector_class_name: it is a class of Ruby", self.place_of("selector_class_name"))
        self._validate_hosts(problems)
        self._validate_headers(problems)
        self._validate_keys(problems)
        self._validate_templates(problems)
        if not 0 <= self.time_precision <= 9:
            problems.error("time_precision must be from 0 to 9", self.place_of("time_precision"))
        if self.time_key_format is not None:
            try:
                strptime(self.time_key_format, None)
            except ValueError as error:
                problems.error(f'parameter "time_key_format": {error}', self.place_of("time_key_format"))

    def _refuse(self, problems: Problems) -> None:
        for name, hint in self.not_built.items():
            value: Any = getattr(self, name)
            if value not in (None, False, "", [], {}):
                problems.error(f'parameter "{name}" is not supported', self.place_of(name), hint=hint)

    def _validate_hosts(self, problems: Problems) -> None:
        self._validate_cloud(problems)
        text = self.hosts or self.host
        place = self.place_of("hosts" if self.hosts else "host")
        if not PLACEHOLDER.search(text):
            try:
                parse_hosts(text, self)
            except Error as error:
                problems.error(error.message, place)
        if (self.ssl_min_version is None) != (self.ssl_max_version is None):
            problems.error("ssl_min_version and ssl_max_version are set together", self.place)
        self._tls: TlsConfig | None = None
        if self.scheme == "https" or "https:" in text or PLACEHOLDER.search(text):
            oldest = self.ssl_min_version
            self._tls = client_tls(
                self,
                problems,
                {"ca_file": self.ca_file, "client_cert": self.client_cert, "client_key": self.client_key},
                min_version="TLSv1_2" if oldest in {None, "SSLv23"} else oldest,
                max_version=None if self.ssl_max_version == "SSLv23" else self.ssl_max_version,
                ca_path=self.ca_file,
                cert=self.client_cert,
                key=self.client_key,
                passphrase=self.client_key_pass,
                verify_mode="peer" if self.ssl_verify else "none",
            )
        try:
            self._proxies = ProxyChoice(None, os.environ, TlsConfig())
        except Error as error:
            problems.error(error.message, self.place)
        if self.user is not None and self.password is None:
            problems.error("`password` must be present if `user` is present", self.place_of("user"))

    def _validate_cloud(self, problems: Problems) -> None:
        """Take cloud_id and cloud_auth, where the output has them, as host, user and password."""

    def _take_cloud(self, cloud_id: str, cloud_auth: str | None, problems: Problems) -> None:
        try:
            self.__dict__["hosts"] = cloud_host(cloud_id)
        except ValueError as error:
            problems.error(f'parameter "cloud_id": {error}', self.place_of("cloud_id"))
            return
        if cloud_auth is None or ":" not in cloud_auth:
            problems.error("`cloud_auth` (user:password) must be present if `cloud_id` is present", self.place)
            return
        self.__dict__["scheme"] = "https"
        self.__dict__["user"], _, self.__dict__["password"] = cloud_auth.partition(":")

    def _validate_headers(self, problems: Problems) -> None:
        for name, value in self.custom_headers.items():
            place = self.place_of("custom_headers")
            if not is_field_name(name) or not is_field_value(value):
                problems.error(f'"{name}" in custom_headers cannot be sent', place)
            elif name.lower() in FRAMING:
                problems.error(f'"{name}" in custom_headers cannot be set', place, hint="the length is counted")

    def _validate_keys(self, problems: Problems) -> None:
        for name in ("id_key", "parent_key", "routing_key"):
            text = getattr(self, name)
            if text is None:
                continue
            if "." in text and not text.startswith(("$.", "$[")):
                text = f"$.{text}"
            try:
                self.__dict__[f"{name}_of"] = Accessor(text).get
            except ValueError as error:
                problems.error(f'parameter "{name}": {error}', self.place_of(name))
        if self.write_operation in {UPDATE, UPSERT, CREATE} and self.id_key is None and self.needs_id:
            problems.error(
                f"write_operation {self.write_operation} needs id_key",
                self.place_of("write_operation"),
                hint="set id_key",
            )

    needs_id: ClassVar[bool] = True
    """Whether an operation other than index needs an _id."""

    def _validate_templates(self, problems: Problems) -> None:
        if (self.template_name is None) != (self.template_file is None):
            problems.error("template_name and template_file are set together", self.place_of("template_name"))
        for name, path in (("template_file", self.template_file), *[("templates", p) for p in self._more_templates()]):
            if path is not None and not os.path.isfile(path):
                problems.error(f'{name}: "{path}" does not exist', self.place_of(name))
        if self.max_retry_putting_template < 0:
            problems.error("max_retry_putting_template must be at least 0", self.place_of("max_retry_putting_template"))

    def _more_templates(self) -> list[str]:
        return list((self.templates or {}).values())
