"""The output `forward`: chunks to other nodes by the Forward Protocol, over connections that a lane owns.

    chunk --> output.py --> balancer.py (which node) --> links.py (a lane's connections) --> link.py --> node

output.py            ForwardOutput: the way of a chunk, acknowledged or not; nodes that come and go
parameters.py        what is configured, and what is wrong with it
message.py           a chunk as a message
balancer.py          weights, standby, the order in which nodes are tried; no I/O
node.py              what is known of one node: detector, breaker, counters; no I/O
detector.py          the phi accrual failure detector; no I/O
links.py             the connections of one lane: kept or not, found dead before they are written to
link.py              one connection: handshake, messages, acknowledgements
heartbeat.py         the loops that tell whether nodes live
addresses.py         the addresses of a node's name: dns_round_robin, expire_dns_cache

https://docs.fluentd.org/output/forward
"""

from headrace.plugins.out_forward.output import ForwardOutput

__all__ = ["ForwardOutput"]
