"""Tail: lines of JSON and of Apache's combined log to null, beside Fluentd and Fluent Bit; and a gigabyte of our own.

How far a program has come is read from its position file, which Fluentd and headrace write alike; Fluent Bit
tells it by its own metrics.
"""

from __future__ import annotations

import json
import pathlib
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from common import PIPELINES, Program, against, free_port, pipeline_command, spread

CONF = """
<source>
  @type tail
  path {path}
  pos_file {pos}
  tag bench.tail
  read_from_head true
  <parse>
    @type {parser}
  </parse>
</source>
<match **>
  @type null
</match>
"""
FLUENT_BIT = """
[SERVICE]
  flush 1
  log_level error
  http_server on
  http_listen 127.0.0.1
  http_port {port}
  parsers_file {parsers}
[INPUT]
  name tail
  alias lines
  path {path}
  read_from_head true
  parser {parser}
[OUTPUT]
  name null
  match *
"""
APACHE = (
    r"""^(?<host>[^ ]*) [^ ]* (?<user>[^ ]*) \[(?<time>[^\]]*)\] "(?<method>\S+)(?: +(?<path>[^ ]*) +\S*)?" """
    r"""(?<code>[^ ]*) (?<size>[^ ]*)(?: "(?<referer>[^\"]*)" "(?<agent>.*)")?$"""
)
PARSERS = f"""
[PARSER]
  name json
  format json
[PARSER]
  name apache2
  format regex
  regex {APACHE}
  time_key time
  time_format %d/%b/%Y:%H:%M:%S %z
"""
LINES = {
    "json": json.dumps(
        {
            "time": "2026-01-02T03:04:05Z",
            "message": "GET /index.html 200 took 12 ms",
            "host": "web-1.example",
            "user": "u-1029",
            "bytes": 5120,
            "ms": 12.5,
            "agent": "Mozilla/5.0 (X11; Linux x86_64)",
        }
    ),
    "apache2": '192.0.2.7 - frank [02/Jan/2026:03:04:05 +0000] "GET /index.html?a=1 HTTP/1.1" 200 5120 '
    '"http://example.com/start.html" "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/120.0"',
}


def write(path: pathlib.Path, line: str, size: int) -> None:
    """A file of about `size` bytes of one line repeated."""
    block = (line + "\n").encode() * 4096
    with path.open("wb") as file:
        for _ in range(max(size // len(block), 1)):
            file.write(block)


def position(pos: pathlib.Path) -> int:
    """The offset in a position file of one entry."""
    fields = pos.read_text().split("\t") if pos.exists() else []
    return int(fields[1], 16) if len(fields) == 3 and fields[1] != "f" * 16 else 0


def records(port: int) -> int:
    """Lines that Fluent Bit has taken."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/metrics", timeout=2) as answer:
            return int(json.load(answer)["input"]["lines"]["records"])
    except (OSError, KeyError, ValueError):
        return 0


def one(
    folder: pathlib.Path, kind: str, name: str, path: pathlib.Path, seconds: float | None
) -> dict[str, float] | None:
    """Lines a second over some seconds, or to the end of the file; CPU microseconds a line; resident megabytes."""
    conf = folder / f"{kind}-{name}.conf"
    width = len(LINES[kind]) + 1
    done: Callable[[], float]
    if name == "fluent_bit":
        port, parsers = free_port(), folder / "parsers.conf"
        parsers.write_text(PARSERS)
        conf.write_text(FLUENT_BIT.format(path=path, port=port, parser=kind, parsers=parsers))

        def done() -> float:
            return records(port)
    else:
        pos = folder / f"{kind}-{name}.pos"
        pos.unlink(missing_ok=True)
        conf.write_text(CONF.format(path=path, pos=pos, parser=kind))

        def done() -> float:
            return position(pos) / width

    command = pipeline_command(name, conf)
    if command is None:
        return None
    end = path.stat().st_size / width
    with Program(command, core=0, log=folder / f"{kind}-{name}.log") as program:
        limit = time.monotonic() + 60
        while not done() and time.monotonic() < limit:
            time.sleep(0.02)
        begin, start, cpu = done(), time.monotonic(), program.cpu()
        while done() < end and (seconds is None or time.monotonic() - start < seconds):
            time.sleep(0.02)
        lines, taken = done() - begin, time.monotonic() - start
        used, memory = program.cpu() - cpu, sum(program.memory()) / 1e6
    return {"rate": lines / taken, "cpu_us": used / max(lines, 1) * 1e6, "resident_mb": memory}


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Both kinds of lines, programs in turn, then the gigabyte."""
    rounds, seconds = (2, 4.0) if quick else (3, 8.0)
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    whole: dict[str, Any] = {}
    for kind, line in LINES.items():
        path = folder / f"{kind}.log"
        write(path, line, 1 << 30)
        for _ in range(rounds):
            for name in PIPELINES:
                result = one(folder, kind, name, path, seconds)
                if result is not None:
                    rows.setdefault(kind, {}).setdefault(name, []).append(result)
        if not quick:
            whole[kind] = one(folder, kind, "headrace", path, None)
        path.unlink()
    full: dict[str, Any] = {
        "jobs": {
            kind: {
                name: {key: spread([one[key] for one in runs]) for key in ("rate", "cpu_us", "resident_mb")}
                for name, runs in programs.items()
            }
            for kind, programs in rows.items()
        },
        "a_gigabyte": whole,
    }
    rates = {kind: {name: [r["rate"] for r in runs] for name, runs in row.items()} for kind, row in rows.items()}
    for peer in ("fluentd", "fluent_bit"):
        if found := against(rates, peer):
            full[f"times_{peer}"] = found
    return full


GOALS = {
    "times_fluentd.json": -4.0,
    "times_fluentd.apache2": -2.5,
    "times_fluent_bit.json": -0.7,
    "times_fluent_bit.apache2": -0.7,
}
