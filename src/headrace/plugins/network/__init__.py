"""What the sources tcp, udp and syslog have in common: messages by a socket.

    a socket --streams.py, datagrams.py--> frames.py --> source.py (convert, by the plugin) --> router

source.py      NetworkSource: parameters, start and end; messages -> events -> router, patiently or not
streams.py     TCP and TLS: connections that stop reading while the router is full
datagrams.py   UDP: some datagrams a readiness, drops counted
frames.py      bytes of a stream -> messages, by delimiter or by octet counts; no I/O
clients.py     who may send, and names of addresses
"""

from headrace.plugins.network.source import NetworkSource, StreamTransport

__all__ = ["NetworkSource", "StreamTransport"]
