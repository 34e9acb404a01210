"""E.5: resident memory at start and under load, bytes an idle connection, time to the first answer."""

from __future__ import annotations

import pathlib
import resource
import socket
import time
from typing import Any

from common import BIN, Program, free_port, headrace_nginx_command, nginx_command, spread, wait_for
from job_hello import CONF
from job_reuse import send, sink

IDLE = 10_000


def idle_connections(port: int, program: Program, count: int) -> float:
    """Bytes of resident memory for each keep-alive connection that has had one answer and waits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 1000), hard))
    request = b"GET /return HTTP/1.1\r\nHost: a\r\n\r\n"

    def open_some(some: int) -> list[socket.socket]:
        made = []
        for _ in range(some):
            made.append(socket.create_connection(("127.0.0.1", port)))
            made[-1].sendall(request)
            made[-1].recv(4096)
        return made

    warm = open_some(200)
    before = sum(program.memory())
    held = open_some(count)
    after = sum(program.memory())
    for one in warm + held:
        one.close()
    return (after - before) / count


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Start three times, then idle connections, then the sender's load with reuse for a while."""
    result: dict[str, Any] = {}
    for name, command in (("headrace", headrace_nginx_command), ("nginx", nginx_command)):
        starts = []
        for turn in range(3):
            prefix = folder / f"{name}-{turn}"
            prefix.mkdir()
            port = free_port()
            conf = prefix / "nginx.conf"
            conf.write_text(CONF.format(port=port).replace("events {}", "events { worker_connections 20000; }"))
            full = command(prefix, conf)
            if full is None:
                break
            with Program(full, log=folder / f"{name}.log") as program:
                wait_for(port, program)
                starts.append(time.monotonic())
                with socket.create_connection(("127.0.0.1", port)) as one:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    one.recv(4096)
                starts[-1] = time.monotonic() - starts[-1]
                time.sleep(0.5)
                sizes = program.memory()
                if turn == 2:
                    result[f"{name}_resident_mb"] = [round(size / 1e6, 1) for size in sizes]
                    result[f"{name}_idle_connection_bytes"] = idle_connections(port, program, 2_000 if quick else IDLE)
    result["first_answer_ms"] = spread([1000 * first_answer(folder, turn) for turn in range(5)])
    result["sender_line_mb"] = line(folder, 20 if quick else 600)
    return result


def first_answer(folder: pathlib.Path, turn: int) -> float:
    """Seconds from the start of the command to the first byte of an answer."""
    prefix = folder / f"first-{turn}"
    prefix.mkdir()
    port = free_port()
    conf = prefix / "nginx.conf"
    conf.write_text(CONF.format(port=port))
    start = time.monotonic()
    with Program(headrace_nginx_command(prefix, conf), log=folder / "first.log") as program:
        wait_for(port, program)
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            one.recv(4096)
        return time.monotonic() - start


def line(folder: pathlib.Path, seconds: float) -> list[float]:
    """Resident megabytes of the sender's worker at ten moments of a steady load at 3,000 events/s."""
    from job_reuse import SENDER  # noqa: PLC0415  (only this job needs the text itself)

    points = []
    with sink(folder) as (port, _, _status):
        conf = folder / "line.conf"
        conf.write_text(SENDER.format(rate=3000, endpoint=f"http://127.0.0.1:{port}", reuse="true", extra="", burst=""))
        with Program([str(BIN / "headrace-fluentd"), "-c", str(conf)], core=0, log=folder / "line.log") as program:
            for _ in range(10):
                time.sleep(seconds / 10)
                points.append(round(max(program.memory()) / 1e6, 1))
    return points


GOALS = {"headrace_idle_connection_bytes": 2048.0, "first_answer_ms": 250.0}

__all__ = ["GOALS", "run", "send"]
