"""The source `forward`: events by the Forward Protocol v1 (https://docs.fluentd.org/input/forward).

    connection.py --forward.stream.Decoder--> intake.py (message -> tag, Batch) --> router --> ack

input.py       ForwardInput: parameters, start and end
server.py      the listener and its connections
connection.py  one client: handshake, messages in their order, acknowledgements
intake.py      what a message brings: tag, checked entries, the id of its chunk
room.py        bounds what messages that are not whole take, over all connections
security.py    the <security> section: who may send
heartbeat.py   heartbeats by UDP
"""

from headrace.plugins.in_forward.input import ForwardInput

__all__ = ["ForwardInput"]
