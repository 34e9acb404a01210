"""Output `opensearch_data_stream` (https://github.com/fluent/fluent-plugin-opensearch); see plugins/elastic/."""

from __future__ import annotations

from headrace.plugins.elastic.data_stream import DataStreamOutput
from headrace.plugins.out_opensearch import OpensearchOutput


class OpensearchDataStreamOutput(DataStreamOutput, OpensearchOutput):
    """Sends records to a data stream of OpenSearch."""
