"""stream {}: connections that are handed on without knowing what they say.

    families.py   the directives: the block, its servers, and those of edge that mean the same here
    service.py    the listeners of the block, part of the gateway's life
    session.py    one connection through its phases: post-accept, preaccess, access, ssl, preread, content, log
    variables.py  what logs, maps and addresses ask of a session
    preread.py    the ClientHello, read without TLS (no I/O)
    proxy.py      choosing a peer, connecting, and handing bytes on at a pace

A Session has the parts of edge's Request that values, logs, maps, limits and balancing use; they are edge's own.
https://nginx.org/en/docs/stream/ngx_stream_core_module.html
"""
