"""A TLS engine on OpenSSL's own library, for what Python's ssl does not reach.

    settings.Settings   what a side of a connection is told; a value
    context.Context     an SSL_CTX made of it, certificates and trust within
    connection.Connection   an SSL over memory buffers: the interface of core.tls_engine.TlsEngine, and hooks
    hooks.Hooks         what may be asked in the middle of a handshake, and may wait
    hello.ClientHello   what the client has said, for the first of the hooks

Beside them: library (the shared library and its functions), failure (its errors as Python's), handles (objects
of OpenSSL that are freed with their owner), certificates (PEM and DER, names and dates), sessions and tickets
(resumption, by a cache that workers share and by tickets with keys that change), ocsp (stapling and checks).

The bytes go in and out as with Python's engine, by memory buffers, so `core.tls.TlsStream` drives both. Callbacks of
OpenSSL only take notes; a hook is run by `Connection.handshake` after the library has returned, so that it may wait,
or call into anything.
"""
