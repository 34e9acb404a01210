"""The output `http`: chunks by HTTP requests, over connections that are reused.

    chunk --> output.py --> request.py (head, body) --> connection.py (one per lane) --> policy.py

output.py            HttpOutput: the way of a chunk
parameters.py        what is configured, and what is wrong with it
endpoint.py          URL -> what a connection is keyed by, and a request line
request.py           the bytes of a request
auth.py              Basic and AWS signatures; aws_credentials.py finds AWS credentials
proxy.py             which proxy, by parameter or environment
connection.py        the connection of a lane: probe, reuse, replace, send once more
peers.py             the chunk's id in a header field, for receivers that know it
policy.py            what a status means for the chunk

https://docs.fluentd.org/output/http
"""

from headrace.plugins.out_http.output import HttpOutput

__all__ = ["HttpOutput"]
