"""Bytes in and out. Knows no Lua, no nginx directive, no event.

    listener.py  accepts ------.
    connect.py   dials ---------+--> stream.py / tls.py (tls_config.py, tls_engine.py; openssl/, the gateway's engine)
    pool.py      keeps idle ---'       one connection: its descriptor, its deadlines, its owner (owner.py)
                                       chain.py  the unsent bytes of one connection
    http1/       bytes -> events -> bytes, and the server and client connections that use them
    clock.py     the only source of time; failure.py: OSError -> errors.ConnectionFailed

Whoever holds a stream is its owner, and the only one who appends to its chain.
"""
