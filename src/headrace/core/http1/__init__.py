"""HTTP/1.1 and 1.0, both sides.

Bytes -> events: request.py (request heads), body.py (body framing), parse.py (the parsers for requests
and responses, on top of both). Events -> bytes: frame.py. None of these does I/O; events.py names what
they say. With I/O: server.py (HttpConnection: one client connection), exchange.py (Exchange: one request
and its answer), inbound.py (a request body on its way to the handler), dispatch.py (running a handler),
linger.py (the end of a connection), settings.py; client.py (one request on a stream).
"""
