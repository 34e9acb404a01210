"""Elasticsearch and OpenSearch: chunks as requests of the bulk API, over connections that each lane owns.

    chunk --> documents.py (action and source lines) --> output.py --> cluster.py --> http_lane
                                                           |
                                          answers.py: which items failed, and what becomes of them

parameters.py        what is configured, for both
cluster.py           the hosts, which of them is asked next, authorization, the server's version
documents.py         a record -> the lines of a bulk request
answers.py           the answer of a bulk request -> delivered, to be tried again, rejected
templates.py         index templates, and what data streams need
output.py            the way of a chunk
data_stream.py       the same into a data stream

The outputs are out_elasticsearch.py, out_opensearch.py and their data stream forms.
https://github.com/uken/fluent-plugin-elasticsearch, https://github.com/fluent/fluent-plugin-opensearch

Different on purpose: of a bulk request that failed in part, only the items that failed are sent again, from this
output's own buffer and by its retry parameters; the originals emit them anew, through the filters and past the
retry limit. `retry_tag` asks for that way.
"""
