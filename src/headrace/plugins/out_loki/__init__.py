"""The output `loki`: records as lines of streams, by Loki's push API.

    chunk --> lines.py (labels, line) --> output.py (one JSON document) --> http_lane --> POST /loki/api/v1/push

https://grafana.com/docs/loki/latest/send-data/fluentd/
"""

from headrace.plugins.out_loki.output import LokiOutput

__all__ = ["LokiOutput"]
