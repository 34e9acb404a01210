"""Plugins of Fluentd that headrace has not built: to name one is no typing error, and is not called one.

docs.fluentd.org, Input Plugins and the chapters after it; and the widespread ones of fluentd.org/plugins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final[Mapping[str, str]] = {
    "input": """
        gc_stat object_space debug_agent
        windows_eventlog windows_eventlog2 windows_exporter node_exporter_metrics
        kafka kafka_group rdkafka_group s3 sqs
        kinesis_firehose cloudwatch_logs gelf snmp mysql_replicator sql mongo_tail redis rabbitmq mqtt
        opentelemetry docker kubernetes_objects dstat netflow beats multiprocess
    """,
    "output": """
        stream elasticsearch_dynamic
        kafka kafka_buffered rdkafka rdkafka2
        mongo mongo_replset webhdfs td tdlog splunk_hec splunk_tcp datadog newrelic google_cloud bigquery
        bigquery_insert bigquery_load gcs azurestorage azure-loganalytics cloudwatch_logs kinesis_streams
        kinesis_streams_aggregated kinesis_firehose sqs sns rewrite route forest label_router
        statsd graphite influxdb slack mail redis rabbitmq mqtt syslog remote_syslog gelf logzio_buffered
        logentries sumologic papertrail postgres mysql mysql_bulk sql file_alternative flatten
        record_reformer multiprocess opentelemetry sampling_filter
    """,
    "filter": """
        geoip detect_exceptions
        throttle flatten flatten_hash json_transform sampling elasticsearch_genid opensearch_genid dedot
        add suppress typecast map anonymizer ua_parser enrich_kubernetes rename_key opentelemetry
    """,
    "parser": """
        multiline grok multiline_grok winevt_xml
        winevt_sax protobuf avro logfmt
    """,
    "formatter": "protobuf avro logfmt",
    "buffer": "redis",
    "sd": "consul",
    "storage": "redis mongo memcached",
}

NAMES: Final = {kind: frozenset(names.split()) for kind, names in _NAMES.items()}
"""Kind, as in registry.PREFIXES -> the names."""

REMOVED: Final = {
    "buffered_null": "write @type null with a <buffer> section",
    "buffered_stdout": "write @type stdout with a <buffer> section",
}
"""Outputs that Fluentd had before 1.0 -> what to write in their place."""

HINT: Final = "Fluentd has it; headrace has not built it yet"
