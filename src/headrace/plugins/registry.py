"""Which class a `@type` names: one table of built-ins, then the installed packages.

Rules:
- A built-in is written as "module:Class" and imported when a configuration first names it, so that
  a start pays only for what it uses.
- A third party's package adds plugins by entry points of the group `headrace.plugins`; the name of
  an entry point is the kind's prefix and the plugin's name, as Fluentd names its files:

      [project.entry-points."headrace.plugins"]
      out_carrier_pigeon = "pigeon.plugin:PigeonOutput"

- A built-in wins over an entry point of the same name: what is installed never changes what a
  configuration without it meant.
- Files of a plugin folder (`headrace-fluentd -p`, `headrace run --plugin`) go before both: see folder.py.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfError
from headrace.pipeline.plugin import Plugin
from headrace.plugins import unbuilt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint

GROUP: Final = "headrace.plugins"

PREFIXES: Final[Mapping[str, str]] = {
    "input": "in",
    "output": "out",
    "filter": "filter",
    "parser": "parser",
    "formatter": "formatter",
    "buffer": "buf",
    "storage": "storage",
    "sd": "sd",
}
"""kind -> prefix of its entry points."""

_PLUGINS: Final = "headrace.plugins."

BUILT_INS: Final[Mapping[str, Mapping[str, str]]] = {
    "input": {
        "http": "in_http:HttpInput",
        "forward": "in_forward:ForwardInput",
        "syslog": "in_syslog:SyslogInput",
        "exec": "in_exec:ExecInput",
        "unix": "in_unix:UnixInput",
        "monitor_agent": "in_monitor_agent:MonitorAgentInput",
        "tcp": "in_tcp:TcpInput",
        "udp": "in_udp:UdpInput",
        "sample": "in_sample:SampleInput",
        "tail": "in_tail:TailInput",
        "dummy": "in_sample:SampleInput",
        "systemd": "in_systemd:SystemdInput",
        "prometheus": "in_prometheus:PrometheusInput",
        "prometheus_monitor": "in_prometheus_monitor:PrometheusMonitorInput",
        "prometheus_output_monitor": "in_prometheus_output_monitor:PrometheusOutputMonitorInput",
        "prometheus_tail_monitor": "in_prometheus_tail_monitor:PrometheusTailMonitorInput",
    },
    "output": {
        "http": "out_http:HttpOutput",
        "forward": "out_forward:ForwardOutput",
        "stdout": "out_stdout:StdoutOutput",
        "null": "out_null:NullOutput",
        "exec": "out_exec:ExecOutput",
        "exec_filter": "out_exec_filter:ExecFilterOutput",
        "file": "out_file:FileOutput",
        "copy": "out_copy:CopyOutput",
        "relabel": "out_relabel:RelabelOutput",
        "roundrobin": "out_roundrobin:RoundRobinOutput",
        "buffer": "out_buffer:BufferOutput",
        "secondary_file": "out_secondary_file:SecondaryFileOutput",
        "flowcounter_simple": "out_flowcounter_simple:FlowcounterSimpleOutput",
        "prometheus": "out_prometheus:PrometheusOutput",
        "elasticsearch": "out_elasticsearch:ElasticsearchOutput",
        "elasticsearch_data_stream": "out_elasticsearch_data_stream:ElasticsearchDataStreamOutput",
        "loki": "out_loki:LokiOutput",
        "s3": "out_s3:S3Output",
        "kafka2": "out_kafka2:Kafka2Output",
        "opensearch": "out_opensearch:OpensearchOutput",
        "opensearch_data_stream": "out_opensearch_data_stream:OpensearchDataStreamOutput",
        "rewrite_tag_filter": "out_rewrite_tag_filter:RewriteTagFilterOutput",
        "record_modifier": "out_record_modifier:RecordModifierOutput",
        "detect_exceptions": "out_detect_exceptions:DetectExceptionsOutput",
    },
    "filter": {
        "stdout": "filter_stdout:StdoutFilter",
        "grep": "filter_grep:GrepFilter",
        "parser": "filter_parser:ParserFilter",
        "flowcounter_simple": "filter_flowcounter_simple:FlowcounterSimpleFilter",
        "prometheus": "filter_prometheus:PrometheusFilter",
        "systemd_entry": "filter_systemd_entry:SystemdEntryFilter",
        "kubernetes_metadata": "filter_kubernetes_metadata:KubernetesMetadataFilter",
        "record_transformer": "filter_record_transformer:RecordTransformerFilter",
        "record_modifier": "filter_record_modifier:RecordModifierFilter",
        "concat": "filter_concat:ConcatFilter",
    },
    "parser": {
        "json": "parser_json:JsonParser",
        "msgpack": "parser_msgpack:MsgpackParser",
        "none": "parser_none:NoneParser",
        "ltsv": "parser_ltsv:LtsvParser",
        "csv": "parser_csv:CsvParser",
        "tsv": "parser_tsv:TsvParser",
        "regexp": "parser_regexp:RegexpParser",
        "multiline": "parser_multiline:MultilineParser",
        "apache": "parser_apache:ApacheParser",
        "apache2": "parser_apache2:Apache2Parser",
        "apache_error": "parser_apache_error:ApacheErrorParser",
        "nginx": "parser_nginx:NginxParser",
        "syslog": "parser_syslog:SyslogParser",
        "multi_format": "parser_multi_format:MultiFormatParser",
        "cri": "parser_cri:CriParser",
    },
    "formatter": {
        "json": "formatter_json:JsonFormatter",
        "msgpack": "formatter_msgpack:MsgpackFormatter",
        "single_value": "formatter_single_value:SingleValueFormatter",
        "ltsv": "formatter_ltsv:LtsvFormatter",
        "csv": "formatter_csv:CsvFormatter",
        "tsv": "formatter_tsv:TsvFormatter",
        "out_file": "formatter_out_file:OutFileFormatter",
        "stdout": "formatter_stdout:StdoutFormatter",
        "hash": "formatter_hash:HashFormatter",
    },
    # memory and file are the pipeline's own.
    "buffer": {
        "memory": "buf_memory:MemoryBuffer",
        "file": "buf_file:FileBuffer",
        "file_single": "buf_file_single:FileSingleBuffer",
    },
    "storage": {
        "local": "storage_local:LocalStorage",
    },
    "sd": {
        "static": "sd_static:StaticDiscovery",
        "file": "sd_file:FileDiscovery",
        "srv": "sd_srv:SrvDiscovery",
    },
}


@cache
def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and built-ins do without

    return {point.name: point for point in entry_points(group=GROUP)}


def names(kind: str) -> list[str]:
    """All names that a `@type` of this kind may have here, sorted."""
    prefix = PREFIXES[kind] + "_"
    third = (name.removeprefix(prefix) for name in _installed() if name.startswith(prefix))
    return sorted({*BUILT_INS[kind], *third})


def lookup(kind: str, name: str) -> type[Plugin]:
    """The class of a plugin; `kind` is one of PREFIXES.

    Raises ConfError for a name nobody has (with the nearest one as the hint), and for a package whose
    plugin cannot be imported or is none.
    """
    built_in = BUILT_INS[kind].get(name)
    if built_in is not None:
        module, _, attribute = built_in.partition(":")
        found = getattr(import_module(_PLUGINS + module), attribute)
    else:
        point = _installed().get(f"{PREFIXES[kind]}_{name}")
        if point is None:
            raise ConfError(f'unknown {kind} plugin "{name}"', hint=_hint(kind, name))
        try:
            found = point.load()
        except (ImportError, AttributeError) as error:
            raise ConfError(f'{kind} plugin "{name}" cannot be loaded from {point.value}: {error}') from error
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise ConfError(f'{kind} plugin "{name}" is not a subclass of headrace.pipeline.plugin.Plugin')
    return found


def near(name: str, known: list[str]) -> str:
    """The known name that is most like `name`, "" when none is."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")


def _hint(kind: str, name: str) -> str:
    if name in unbuilt.NAMES[kind]:
        return unbuilt.HINT
    if kind == "output" and name in unbuilt.REMOVED:
        return f"Fluentd has removed it: {unbuilt.REMOVED[name]}"
    elsewhere = [other for other in PREFIXES if other != kind and name in names(other)]
    if elsewhere:
        return f'"{name}" is the name of a plugin of kind {", ".join(elsewhere)}'
    close = near(name, names(kind))
    if close:
        return f'did you mean "{close}"?'
    return "known: " + ", ".join(names(kind))
