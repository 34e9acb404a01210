"""HTTP/2 (RFC 9113), the server's side behind the interface of core.http1's connections and exchanges.

    frames.py      bytes <-> frames, limits before buffers
    hpack.py       header blocks <-> header lists (RFC 7541)
    heads.py       header lists -> RequestHead; heads of answers (as text) -> header blocks
    connection.py  Http2Connection: owner of the stream; frames in, turns of the streams out
    stream.py      Http2Stream: one request's view of the connection, its own chain and windows
    exchange.py    Http2Exchange: the answer of a request, as handlers know it from HTTP/1
    body.py        the request body, and the window that it moves
    preface.py     which protocol a client without TLS speaks
    client.py      the client's side: a connection to a server, one exchange at a time, no I/O

Handlers, filters and logs see an exchange whose head has version 20, and need not know more. HPACK's tables
are those of the package hpack. Its companion h2 is used by the tests as a client; here it would end the connection for
the fault of one request, answer a stream too many with the end of all, and hold 16 MB of a frame before it looks at
its length.
"""
