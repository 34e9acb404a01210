"""Processes: one master without a loop, workers with one loop each.

The way of a start: a `program` (program.py: what topology made of the files) -> master.py opens the
listeners, forks `worker.py`, and supervises.

    program.py    what the master is given: settings of the process, listeners, the engine of a worker
    master.py     signals, restarts, the watchdog, reload; no asyncio
    generation.py one configuration with its workers; respawn with back-off
    crew.py       the processes: fork, watchdog, stop, reap
    succession.py a new master in the place of this one (USR2)
    listeners.py  the sockets, kept from one generation to the next
    events.py     the master's select loop: signals, descriptors, timers
    heartbeat.py  one counter per worker in shared memory
    worker.py     one process: start, serve, stop within a deadline
    osproc.py     what the operating system is asked for: users, limits, daemon, parent death
    pidfile.py    the pid file and `-s signal`, with nginx's texts
    log.py        the engine's own log lines, Fluentd's form or nginx's
    metrics.py    what a worker tells about itself
    admin/        stats over a unix socket, and who asks for them
"""
