"""Upstreams: how a request is handed on to another server, and its answer back to the client.

    request -> visit: [group.choose -> link (pool | dial) -> ask -> reply head -> next_upstream?]* -> answer -> relay

- peers.py, balance.py, address.py: who is asked. No I/O: a chooser hands out peers and hears how it went.
- ask.py (bytes of a request), reply.py (bytes of an answer -> head, body), rewrites.py, answer.py (what of the
  upstream's head goes to the client): no I/O.
- link.py: a connection to a peer, kept or new. visit.py: one request's visit, try by try. relay.py: the body, with
  bounded memory. body.py: the request body on its way. tunnel.py: after `101 Switching Protocols`.
- state.py: what is remembered of the tries, for variables and logs.

A visit owns the upstream connection from the moment it has it until it puts it into the pool or closes it.
https://nginx.org/en/docs/http/ngx_http_upstream_module.html
"""
