"""Figures of running workers: each serves them on a unix socket in the run folder of its master.

rundir.py   where the sockets are, and which masters run
server.py   the worker's side: figures as one JSON answer, and feeds of live events
client.py   the other side of figures: ask every worker, add up
exposition.py   figures as text for Prometheus, and pools of connections
web.py      a listener for monitoring: /metrics, answered for all workers
feeds.py    the other side of feeds: those of all workers, as they come
"""
