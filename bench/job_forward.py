"""Forward: packed batches of 1,000 to null, on to forward, to file, and transformed, beside the peers.

All pinned: the program under test on one core, the load (and the sink) on the other. Each batch is
acknowledged; what counts is acknowledged events a second, and CPU of the program an event.

The job `file` counts what it is for: lines that are in the output file, and the seconds and the CPU until the last of
them is there. (Acknowledged is what is in the buffer. Fluent Bit acknowledges three times as fast as it writes, and
has megabytes before it when the load ends.) All three do the same work: a file buffer, one flush a second, one line an
event with its time, its tag and the record as JSON. What differs:
- Fluent Bit writes its own form, `TAG: [SECONDS, RECORD]`, two bytes longer; its chunks are memory-mapped files.
- Fluentd and Fluent Bit never sync. We sync the buffer every 500 ms, as in the default configuration.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import time
from typing import Any, Final

from common import BIN, PIPELINES, Program, against, children, free_port, pipeline_command, spread, wait_for

HERE = pathlib.Path(__file__).parent
SOURCE = """
<source>
  @type forward
  port {port}
  bind 127.0.0.1
</source>
"""
JOBS = {
    "null": """
<match **>
  @type null
</match>
""",
    "forward": """
<match **>
  @type forward
  heartbeat_type none
  keepalive true
  <server>
    host 127.0.0.1
    port {sink}
  </server>
  <buffer>
    chunk_limit_size 8m
    total_limit_size 512m
    flush_mode interval
    flush_interval 1s
    overflow_action block
  </buffer>
</match>
""",
    "file": """
<match **>
  @type file
  path {folder}/{name}-out
  append true
  <buffer>
    @type file
    path {folder}/{name}-buffer
    flush_mode interval
    flush_interval 1s
    chunk_limit_size 8m
  </buffer>
</match>
""",
    "transformer": """
<filter **>
  @type record_transformer
  <record>
    hostname "#{{Socket.gethostname}}"
    tag ${{tag}}
    where ${{record["host"]}}/${{record["user"]}}
  </record>
</filter>
<match **>
  @type null
</match>
""",
}


FLUENT_BIT = """
[SERVICE]
  flush 1
  log_level error
  storage.path {folder}/{name}-storage
[INPUT]
  name forward
  listen 127.0.0.1
  port {port}
  buffer_chunk_size 1M
  buffer_max_size 16M
"""
FLUENT_BIT_JOBS = {
    "null": """
[OUTPUT]
  name null
  match *
""",
    "forward": """
[OUTPUT]
  name forward
  match *
  host 127.0.0.1
  port {sink}
""",
    "file": """
  storage.type filesystem
[OUTPUT]
  name file
  match *
  path {folder}
  file {name}-out
""",
    "transformer": """
[FILTER]
  name record_modifier
  match *
  record hostname ${{HOSTNAME}}
  record tag bench.forward
  record where web-1.example/u-1029
[OUTPUT]
  name null
  match *
""",
}


def load(port: int, **flags: float) -> dict[str, float]:
    """Run the load on the second core."""
    more = [text for name, value in flags.items() for text in (f"--{name}", f"{value:g}")]
    command = ["taskset", "-c", "1", str(BIN / "python"), str(HERE / "forward_load.py"), str(port), *more]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


REST: Final = 2.2
"""Seconds in which nothing is written when everything is there: two flush intervals."""


def at_rest(folder: pathlib.Path, name: str) -> tuple[int, float]:
    """Wait until the output file grows no more; return its lines, and when (wall clock) the last was written."""
    found = -1
    since = time.monotonic()
    while time.monotonic() - since < REST:
        size = sum(path.stat().st_size for path in _outputs(folder, name))
        if size != found:
            found, since = size, time.monotonic()
        time.sleep(0.1)
    lines, last = 0, 0.0
    for path in _outputs(folder, name):
        last = max(last, path.stat().st_mtime)
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                lines += block.count(b"\n")
    return lines, last


def _outputs(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    return [path for path in folder.glob(f"{name}-out*") if path.is_file()]


def one(folder: pathlib.Path, job: str, name: str, seconds: float, system: str = "") -> dict[str, float] | None:
    """One program, one job: events a second, CPU microseconds an event, resident megabytes after it."""
    port, sink = free_port(), free_port()
    conf = folder / f"{job}-{name}.conf"
    text = FLUENT_BIT + FLUENT_BIT_JOBS[job] if name == "fluent_bit" else system + SOURCE + JOBS[job]
    conf.write_text(text.format(port=port, sink=sink, folder=folder, name=name))
    command = pipeline_command(name, conf)
    if command is None:
        return None
    drain = Program([str(BIN / "python"), str(HERE / "drain.py"), str(sink)], core=1, log=folder / "drain.log")
    try:
        with Program(command, core=None if system else 0, log=folder / f"{job}-{name}.log") as program:
            wait_for(port, program, 30)
            load(port, seconds=0.5, warm=1)
            lines = at_rest(folder, name)[0] if job == "file" else 0
            before = program.cpu()
            done = load(port, seconds=seconds, warm=0)
            events, took = done["events"], seconds
            if job == "file":
                total, last = at_rest(folder, name)
                events, took = total - lines, last - done["began"]
            used = program.cpu() - before
            memory = sum(program.memory()) / 1e6
    finally:
        drain.stop()
        for left in folder.glob(f"{name}-*"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
    return {
        "rate": events / took,
        "cpu_us": used / max(events, 1) * 1e6,
        "resident_mb": memory,
    }


def system_calls(folder: pathlib.Path, seconds: float) -> float | None:
    """System calls an event of the job that writes to null, batches of 1,000, counted by strace."""
    if shutil.which("strace") is None:
        return None
    port = free_port()
    conf = folder / "calls.conf"
    conf.write_text((SOURCE + JOBS["null"]).format(port=port))
    with Program([str(BIN / "headrace-fluentd"), "-c", str(conf)], core=0, log=folder / "calls.log") as program:
        wait_for(port, program, 30)
        load(port, seconds=0.5, warm=0)
        counted = folder / "calls.txt"
        whom = [text for pid in children(program.pid) for text in ("-p", str(pid))]  # the worker is a child
        tracer = subprocess.Popen(["strace", "-f", "-c", "-o", str(counted), *whom], stderr=subprocess.DEVNULL)
        time.sleep(1.0)
        done = load(port, seconds=seconds, warm=0)
        tracer.terminate()
        tracer.wait()
    total = re.search(r"^100\.00\s+\S+\s+(?:\S+\s+)?(\d+)(?:\s+\d+)?\s+total", counted.read_text(), re.MULTILINE)
    return int(total[1]) / max(done["events"], 1) if total else None


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Every job in turn, programs in turn within a round."""
    rounds, seconds = (2, 3.0) if quick else (3, 5.0)
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    for _ in range(rounds):
        for job in JOBS:
            for name in PIPELINES:
                result = one(folder, job, name, seconds)
                if result is not None:
                    rows.setdefault(job, {}).setdefault(name, []).append(result)
    workers = [one(folder, "transformer", "headrace", seconds, f"<system>\n  workers {n}\n</system>\n") for n in (1, 2)]
    acks = {sink: ack_latency(folder, seconds, sink) for sink in ("null", "file")}
    result = {
        job: {
            name: {key: spread([one[key] for one in runs]) for key in ("rate", "cpu_us", "resident_mb")}
            for name, runs in programs.items()
        }
        for job, programs in rows.items()
    }
    full: dict[str, Any] = {
        "jobs": result,
        "synced_ack_at_50000_a_second": acks,
        "system_calls_an_event": system_calls(folder, seconds),
    }
    if workers[0] and workers[1]:
        full["two_workers_over_one"] = workers[1]["rate"] / workers[0]["rate"]
    rates = {job: {name: [r["rate"] for r in runs] for name, runs in row.items()} for job, row in rows.items()}
    for peer in ("fluentd", "fluent_bit"):
        if found := against(rates, peer):
            full[f"times_{peer}"] = found
    return full


def ack_latency(folder: pathlib.Path, seconds: float, sink: str) -> dict[str, float]:
    """Milliseconds to an acknowledgement that waits for an fsync, 50,000 events a second in batches of 100.

    sink: "null" or "file", behind a file buffer.
    """
    port = free_port()
    conf = folder / "ack.conf"
    output = JOBS["file"]
    if sink == "null":
        output = output.replace("@type file\n  path {folder}/{name}-out\n  append true", "@type null", 1)
    conf.write_text(
        (SOURCE + output)
        .replace("@type forward", "@type forward\n  ack_mode fsync", 1)
        .format(port=port, folder=folder, name=f"ack-{sink}")
    )
    with Program([str(BIN / "headrace-fluentd"), "-c", str(conf)], core=0, log=folder / "ack.log") as program:
        wait_for(port, program, 30)
        return load(port, seconds=seconds, warm=2, events=100, rate=50_000, connections=8)


GOALS = {
    "times_fluentd.null": -1.0,
    "times_fluentd.forward": -1.0,
    "times_fluentd.file": -3.0,
    "times_fluentd.transformer": -4.0,
    "times_fluent_bit.forward": -1.0,
    "times_fluent_bit.file": -1.0,
    "times_fluent_bit.transformer": -0.7,
    "synced_ack_at_50000_a_second.null.p50_ms": 1.0,
    "synced_ack_at_50000_a_second.null.p99_ms": 5.0,
    "system_calls_an_event": 0.02,
    "two_workers_over_one": -1.8,
}
