"""The Forward Protocol v1, without I/O: what a sender, a receiver and `headrace cat` share.

    bytes --stream.Decoder--> messages.Message --> Batch            (a receiver)
    packed events --messages.encode_packed--> bytes                 (a sender)

messages.py   what a message is; how one is written
stream.py     bytes of a connection -> messages, in any slicing, bounded
whole.py      what a value of the wire means
jsonstream.py the end of a JSON value: the protocol's second, textual form
entries.py    the entries of a message -> a checked Batch; expansion of compressed ones
handshake.py  HELO, PING, PONG: both sides

https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1
"""
