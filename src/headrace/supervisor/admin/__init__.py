"""Figures of running workers: each serves them on a unix socket in the run folder of its master.

rundir.py   where the sockets are, and which masters run
server.py   the worker's side: one GET, one JSON answer
client.py   the other side: ask every worker, add up
"""
