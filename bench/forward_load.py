"""A load of the forward protocol: PackedForward batches over some connections, each acknowledged.

    python forward_load.py PORT [--seconds S] [--warm S] [--events N] [--connections N] [--window N] [--rate EVENTS/S]

The batches are packed once, so that the load costs little beside what takes it. With a rate, batches leave
evenly spaced and the time to each acknowledgement is kept. Prints one line of JSON: events acknowledged
within the measured seconds, the seconds, the milliseconds to an acknowledgement (p50, p99, most), and when the first
batch left (wall clock).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator

import msgpack

RECORD = {
    "message": "GET /index.html 200 took 12 ms for a client that asked for a page of the catalogue",
    "host": "web-1.example",
    "user": "u-1029",
    "bytes": 5120,
    "ms": 12.5,
}


def packed(events: int, now: int) -> bytes:
    """A stream of entries with integer times."""
    return b"".join(msgpack.packb([now, RECORD]) for _ in range(events))


class Connection:
    """One connection with its window of batches that are not acknowledged."""

    def __init__(self, port: int, tag: str, batch: bytes, events: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = b"\x93" + msgpack.packb(tag) + msgpack.packb(batch)
        self.events = events
        self.sent: dict[str, float] = {}
        self.pending: deque[memoryview] = deque()
        self.unpacker = msgpack.Unpacker(raw=False)

    def add(self, now: float) -> None:
        """Queue one batch under a new chunk id."""
        chunk = base64.b64encode(os.urandom(16)).decode()
        self.sent[chunk] = now
        option = {"size": self.events, "chunk": chunk}
        self.pending += [memoryview(self.head), memoryview(msgpack.packb(option))]

    def write(self) -> None:
        """Send what the socket takes."""
        while self.pending:
            try:
                taken = self.sock.sendmsg(list(self.pending)[:16])
            except BlockingIOError:
                return
            while taken and self.pending:
                first = self.pending[0]
                if taken >= len(first):
                    taken -= len(first)
                    self.pending.popleft()
                else:
                    self.pending[0] = first[taken:]
                    taken = 0

    def read(self) -> Iterator[float]:
        """Yield when each batch that is acknowledged now was queued."""
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit("the receiver closed the connection")
        self.unpacker.feed(data)
        for answer in self.unpacker:
            yield self.sent.pop(answer["ack"])


def run(args: argparse.Namespace) -> dict[str, float]:
    """Send for the given seconds; see the module's text."""
    batch = packed(args.events, int(time.time()))
    connections = [Connection(args.port, args.tag, batch, args.events) for _ in range(args.connections)]
    selector = selectors.DefaultSelector()
    for one in connections:
        selector.register(one.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
    began, start = time.time(), time.monotonic()
    begin, end = start + args.warm, start + args.warm + args.seconds
    gap = args.events / args.rate if args.rate else 0.0
    following, turn = start, 0
    acked, waits = 0, []
    while (now := time.monotonic()) < end:
        if gap:
            while following <= now:
                connections[turn % len(connections)].add(following)
                turn, following = turn + 1, following + gap
        else:
            for one in connections:
                while len(one.sent) < args.window:
                    one.add(now)
        for one in connections:
            one.write()
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if one.pending else 0)
            selector.modify(one.sock, events, one)
        # epoll counts whole milliseconds: the last two before a batch is due are spun, so that it leaves in time.
        left = following - time.monotonic() - 0.002
        for key, mask in selector.select(max(left, 0.0) if gap else 0.5):
            if mask & selectors.EVENT_READ:
                for queued in key.data.read():
                    done = time.monotonic()
                    if begin <= done < end:
                        acked += args.events
                        waits.append((done - queued) * 1000)
    waits.sort()
    at = (lambda part: waits[min(int(len(waits) * part), len(waits) - 1)]) if waits else (lambda _: 0.0)
    waited = {"p50_ms": at(0.5), "p99_ms": at(0.99), "most_ms": at(1.0)}
    return {"events": acked, "seconds": args.seconds, "began": began, **waited}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm", type=float, default=1.0)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--tag", default="bench.forward")
    print(json.dumps(run(parser.parse_args())))
