"""What must not grow: CPU an event, and idle, beside queued chunks, tags and tailed files in growing numbers.

Each line gives the figures at each size and the ratio of the largest to the smallest. CPU is the scheduler's own
figure (nanoseconds), so that a busy machine shows little in it; nothing is compared with a peer.
"""

from __future__ import annotations

import pathlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from common import BIN, Program, free_port, scheduled_seconds, wait_for

SOURCE = """
<source>
  @type forward
  port {port}
  bind 127.0.0.1
</source>
"""
QUEUED = """
<match **>
  @type forward
  heartbeat_type none
  <server>
    host 127.0.0.1
    port 1
  </server>
  <buffer>
    flush_mode immediate
    retry_wait 10s
    retry_max_interval 60s
  </buffer>
</match>
"""
TAGS = """
<match **>
  @type null
  <buffer tag>
    flush_interval 600s
    chunk_limit_size 1m
  </buffer>
</match>
"""
TAIL = """
<source>
  @type tail
  path {folder}/files/*.log
  pos_file {folder}/pos
  tag scale
  refresh_interval 3600
  <parse>
    @type none
  </parse>
</source>
<match **>
  @type null
</match>
"""
SIZES = {"queued_chunks": (10, 100, 1000, 10_000), "tags": (1, 100, 1000, 10_000), "tailed_files": (1, 50, 500, 5000)}
MESSAGES = 3000
SETTLE = 1.5
IDLE = 2.0


def messages(tags: Iterator[str], count: int) -> bytes:
    """Single events, the last of which asks for an acknowledgement."""
    record = {"message": "GET /index.html 200 took 12 ms", "host": "web-1.example", "ms": 12.5}
    now = int(time.time())
    made = [msgpack.packb([next(tags), now, record]) for _ in range(count)]
    made[-1] = msgpack.packb([next(tags), now, record, {"chunk": "last"}])
    return b"".join(made)


def send(port: int, data: bytes) -> None:
    """Send, and wait for the acknowledgement of the last message."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(data)
        sock.settimeout(120)
        if not sock.recv(100):
            raise RuntimeError("no acknowledgement")


def cycle(size: int) -> Iterator[str]:
    """Tags in turn, without end."""
    number = 0
    while True:
        yield f"tag.{number % size}"
        number += 1


def idle(program: Program) -> float:
    """CPU microseconds a second while nothing comes."""
    time.sleep(SETTLE)
    before, start = scheduled_seconds(program.pid), time.monotonic()
    time.sleep(IDLE)
    return (scheduled_seconds(program.pid) - before) / (time.monotonic() - start) * 1e6


def of_messages(folder: pathlib.Path, conf: str, filling: int, tags: int) -> dict[str, float]:
    """Fill, then measure more messages, then idleness."""
    port = free_port()
    path = folder / "scale.conf"
    path.write_text((SOURCE + conf).format(port=port))
    with Program([str(BIN / "headrace-fluentd"), "-c", str(path)], core=0, log=folder / "scale.log") as program:
        wait_for(port, program, 30)
        names = cycle(tags)
        send(port, messages(names, filling))
        before = scheduled_seconds(program.pid)
        send(port, messages(names, MESSAGES))
        spent = scheduled_seconds(program.pid) - before
        return {"event_us": spent / MESSAGES * 1e6, "idle_us_a_second": idle(program)}


def queued_chunks(folder: pathlib.Path, size: int) -> dict[str, float]:
    """Each message becomes a chunk that cannot be delivered."""
    return of_messages(folder, QUEUED, size, 1)


def tags_(folder: pathlib.Path, size: int) -> dict[str, float]:
    """Each tag has a chunk that grows."""
    return of_messages(folder, TAGS, size, size)


def tailed_files(folder: pathlib.Path, size: int) -> dict[str, float]:
    """Lines appended one at a time, to one file after the other."""
    files = folder / "files"
    files.mkdir()
    paths = [files / f"{number}.log" for number in range(size)]
    for path in paths:
        path.write_text("first\n")
    conf = folder / "tail.conf"
    conf.write_text(TAIL.format(folder=folder))
    with Program([str(BIN / "headrace-fluentd"), "-c", str(conf)], core=0, log=folder / "tail.log") as program:
        pos = folder / "pos"
        limit = time.monotonic() + 60
        while time.monotonic() < limit and (not pos.exists() or pos.read_text().count("\n") < size):
            time.sleep(0.1)
        resting = idle(program)
        lines = 1000
        before = scheduled_seconds(program.pid)
        for number in range(lines):
            with paths[number % size].open("a") as file:
                file.write("a line of a log that is tailed\n")
            time.sleep(0.002)
        time.sleep(0.5)
        return {"event_us": (scheduled_seconds(program.pid) - before) / lines * 1e6, "idle_us_a_second": resting}


JOBS: dict[str, Callable[[pathlib.Path, int], dict[str, float]]] = {
    "queued_chunks": queued_chunks,
    "tags": tags_,
    "tailed_files": tailed_files,
}


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Every size of each, in order; the quick form leaves out what lies between."""
    full: dict[str, Any] = {}
    for name, job in JOBS.items():
        sizes = SIZES[name]
        rows: dict[str, dict[str, float]] = {}
        for size in (sizes[0], sizes[-1]) if quick else sizes:
            place = folder / f"{name}-{size}"
            place.mkdir()
            rows[str(size)] = job(place, size)
        first, last = rows[str(sizes[0])], rows[str(sizes[-1])]
        full[name] = {
            "sizes": rows,
            "times_event": last["event_us"] / max(first["event_us"], 1e-9),
            "idle_more_us_a_second": last["idle_us_a_second"] - first["idle_us_a_second"],
        }
        for key in ("event_us", "idle_us_a_second"):
            line = "  ".join(f"{size}: {row[key]:.1f}" for size, row in rows.items())
            print(
                f"  {name} {key}: {line}  (largest over smallest: {last[key] / max(first[key], 1e-9):.2f})", flush=True
            )
    return full


GOALS = {
    f"{name}.{key}": most for name in JOBS for key, most in (("times_event", 1.5), ("idle_more_us_a_second", 5000.0))
}
