"""stream {}: connections and datagrams that are handed on without knowing what they say.

    families.py   the directives: the block, its servers, and those of edge that mean the same here
    ports.py      which servers share a socket, and which of them a name means
    service.py    the listeners of the block, part of the gateway's life
    session.py    one connection through its phases: post-accept, preaccess, access, ssl, preread, content, log
    steps.py      what is done in preread, and `return`
    variables.py  what logs, maps and addresses ask of a session
    preread.py    the ClientHello, read without TLS (no I/O)
    settings.py   what proxy_... directives say
    proxy.py      choosing a peer, connecting
    relay.py      bytes both ways, at a pace
    udp.py        datagrams both ways, and when a session of them is over
    steer.py      peers that a script chooses

A Session has the parts of edge's Request that values, logs, maps, limits and balancing use; they are edge's own.
https://nginx.org/en/docs/stream/ngx_stream_core_module.html
"""
