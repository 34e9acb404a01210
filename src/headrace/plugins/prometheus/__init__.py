"""The Prometheus family: figures of records and of the pipeline, in the text formats that Prometheus reads.

    filter_prometheus, out_prometheus --metrics.py--> registry.py <--monitor.py-- in_prometheus_*_monitor
                                                          |
                                    in_prometheus --text.py--> GET /metrics

registry.py          the metrics of one worker: counters, gauges, summaries, histograms, by name and labels
labels.py            <labels>: constants, placeholders and record accessors, compiled once
metrics.py           <metric>: what the filter and the output count
monitor.py           what the three monitor sources have in common
text.py              text format 0.0.4, OpenMetrics 1.0, and putting the texts of all workers together

Each worker has metrics of its own and a port of its own (`port` + worker), as in fluent-plugin-prometheus, so
nothing is shared between processes; `aggregated_metrics_path` asks all workers and answers for all. That is why
the registry is this one and not prometheus_client's, whose way through several processes is files on disk.

https://github.com/fluent/fluent-plugin-prometheus
"""
