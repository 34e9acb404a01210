"""Bombs to the forward source: refused early, for little memory, and the neighbours do not notice."""

from __future__ import annotations

import contextlib
import gzip
import socket
import struct
from pathlib import Path

import msgpack
import pytest
import wire_rig as rig
import zstandard

from headrace.pipeline.event import pack_event, pack_value

MB = 1 << 20
MOST = 64 * MB
"""Memory that a bomb may cost."""
SENT = 64 * MB
"""Bytes that a bomb without an end may bring to its peer before it is cut off."""

CONF = (
    """
<source>
  @type forward
  port PORT
  bind 127.0.0.1
</source>
<filter **>
  @type grep
  <exclude>
    key never
    pattern ./
  </exclude>
</filter>
<match **>
  @type stdout
</match>
""".replace("./", ".")
    + rig.NO_LOG_EVENTS
)


def packed(entries: bytes, **options: object) -> bytes:
    return b"\x93\xa4bomb\xdb" + struct.pack(">I", len(entries)) + entries + pack_value({"chunk": "b" * 20, **options})


def endless(head: bytes, piece: bytes):
    yield head
    while True:
        yield piece


def bombs():
    zeros = bytes(100 * MB)
    keys = msgpack.packb({f"k{number}": None for number in range(1_000_000)})
    entry = b"\x92\xce\x65\x53\xf1\x00"
    event = pack_event(1_700_000_000_000_000_000, {"m": "x" * 100})
    small = entry + b"\x80"
    once = gzip.compress(zeros)
    return {
        "gzip 1000:1": packed(once, compressed="gzip"),
        "gzip of events": packed(gzip.compress(event * 1_000_000), compressed="gzip"),
        "gzip in many members": packed(gzip.compress(bytes(MB)) * 100, compressed="gzip"),
        "zstd 1000:1": packed(zstandard.compress(zeros), compressed="zstd"),
        "gzip in gzip": packed(gzip.compress(once), compressed="gzip"),
        "zstd in gzip": packed(gzip.compress(zstandard.compress(zeros)), compressed="gzip"),
        "frame in a frame": packed(gzip.compress(packed(once, compressed="gzip")), compressed="gzip"),
        "announces 1 GB": endless(b"\x92\xa4bomb\xdb\x40\x00\x00\x00", event * 1000),
        "a record announces 1 GB": endless(b"\x93\xa4bomb\x01\x81\xa1m\xdb\x40\x00\x00\x00", event * 1000),
        "a tag announces 1 GB": endless(b"\x93\xdb\x40\x00\x00\x00", event * 1000),
        "grows for ever": endless(b"\x92\xa4bomb\xdd\xff\xff\xff\xff", event * 1000),
        "grows for ever in small pieces": endless(b"\x92\xa4bomb\xdd\xff\xff\xff\xff", b"\x01\x02" * 20),
        "options grow for ever": endless(b"\x93\xa4bomb\xa0\xdf\x00\x00\x10\x00", b"\xa3abc\xc0" * 100),
        "JSON grows for ever": endless(b'["bomb", 1, {"m": "', b"x" * 65536),
        "nested 100,000 deep": b"\x93\xa4bomb\x01" + b"\x81\xa1a" * 100_000 + b"\x01",
        "nested 100,000 deep, packed": packed(entry + b"\x81\xa1a" + b"\x91" * 100_000 + b"\x01"),
        "JSON nested 100,000 deep": b'["bomb", 1, {"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]",
        "a million keys": b"\x93\xa4bomb\xce\x65\x53\xf1\x00" + keys,
        "a million keys, packed": packed(entry + keys, size=1),
        "a million keys, compressed": packed(zstandard.compress(entry + keys), size=1, compressed="zstd"),
        "a million keys, forward": b"\x92\xa4bomb\x91" + entry + keys,
        "a million keys in JSON": b'["bomb",1,{'
        + b",".join(b'"k%d":1' % number for number in range(1_000_000))
        + b"}]",
        "a map announces 4 billion": packed(entry + b"\xdf\xff\xff\xff\xff", size=1),
        "8 million values in one record": packed(
            entry + b"\x81\xa1a\xdd\x00\x7a\x12\x00" + b"\x90" * 8_000_000, size=1
        ),
        "8 million entries that are none": packed(b"\xc0" * 8_000_000, size=8_000_000),
        "3 million empty entries": packed(b"\x92\xc0\x80" * 3_000_000),
        "a wrong size": packed(small * 1000, size=4_000_000_000),
        "an array of two billion": endless(b"\xdd\x7f\xff\xff\xff", b"\xc0" * 65536),
    }


class Process:
    """A running headrace and its memory."""

    def __init__(self, process):
        self.process = process
        self.status = Path(f"/proc/{process.pid}/status")

    def memory(self, name: str) -> int:
        for line in self.status.read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(name)

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def throw(port: int, bomb) -> int:
    """Send a bomb until it is through or refused; bytes sent."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock, contextlib.suppress(OSError):
        for piece in [bomb] if isinstance(bomb, bytes) else bomb:
            sock.sendall(piece)
            sent += len(piece)
            if sent > SENT:
                break
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    return sent


def acked(sock: socket.socket, number: int) -> None:
    """A neighbour sends an event and gets its acknowledgement."""
    entries = pack_event(1_700_000_000_000_000_000, {"neighbour": number})
    chunk = f"neighbour-{number:010}"
    sock.sendall(pack_value(["t", entries, {"chunk": chunk, "size": 1}]))
    source = msgpack.Unpacker()
    while True:
        data = sock.recv(65536)
        assert data, "the neighbour's connection was closed"
        source.feed(data)
        for answer in source:
            assert answer == {"ack": chunk}
            return


@pytest.mark.slow
def test_bombs(prefix, port, headrace):
    (prefix / "fluent.conf").write_text(CONF.replace("PORT", str(port)))
    process = headrace("headrace", "run", "--single", prefix / "fluent.conf")
    rig.wait_listens(port, process)
    server = Process(process)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as neighbour:
        acked(neighbour, 0)
        for number, (name, bomb) in enumerate(bombs().items(), 1):
            before = server.memory("VmRSS")
            server.reset_peak()
            sent = throw(port, bomb)
            acked(neighbour, number)
            cost = server.memory("VmHWM") - before
            print(f"{name}: {sent} bytes sent, {cost // MB} MB")
            assert sent <= SENT, name
            assert cost <= MOST, f"{name}: {cost // MB} MB"
            assert process.running
    process.wait_for(f'"neighbour":{number}')
    assert process.output.count('"neighbour"') == number + 1
    assert process.stop() == 0
