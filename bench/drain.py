"""A sink that reads and forgets: python drain.py PORT. A connection to PORT + 1 is told how many bytes came."""

from __future__ import annotations

import selectors
import socket
import sys


def main() -> None:
    """Serve until killed."""
    port = int(sys.argv[1])
    taking, telling = (socket.create_server(("127.0.0.1", one), backlog=128) for one in (port, port + 1))
    selector = selectors.DefaultSelector()
    for one in (taking, telling):
        selector.register(one, selectors.EVENT_READ)
    room = bytearray(1 << 20)
    total = 0
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is telling:
                with sock.accept()[0] as asking:
                    asking.sendall(str(total).encode())
            elif sock is taking:
                selector.register(sock.accept()[0], selectors.EVENT_READ)
            else:
                try:
                    got = sock.recv_into(room)
                except ConnectionError:
                    got = 0
                total += got
                if not got:
                    selector.unregister(sock)
                    sock.close()


main()
