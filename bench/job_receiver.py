"""E.3: POSTs of one and of 100 records over keep-alive connections, beside Fluentd and Fluent Bit."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from common import PIPELINES, Program, against, free_port, pipeline_command, spread, wait_for, wrk, wrk_script

CONF = """
<source>
  @type http
  port {port}
  bind 127.0.0.1
  body_size_limit 32m
  keepalive_timeout 10s
</source>
<match **>
  @type null
</match>
"""

FLUENT_BIT = """
[SERVICE]
  flush 1
  log_level error
[INPUT]
  name http
  listen 127.0.0.1
  port {port}
[OUTPUT]
  name null
  match *
"""

RECORD = {"message": "GET /index.html 200", "host": "web-1.example", "user": "u-1029", "bytes": 5120, "ms": 12.5}


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Requests a second at saturation, wrk on the other core, programs in turn."""
    rounds, seconds = (3, 3) if quick else (5, 8)
    rates: dict[str, dict[str, list[float]]] = {}
    micros: dict[str, dict[str, list[float]]] = {}
    servers: dict[str, tuple[int, Program]] = {}
    try:
        for name in PIPELINES:
            port = free_port()
            conf = folder / f"{name}.conf"
            conf.write_text((FLUENT_BIT if name == "fluent_bit" else CONF).format(port=port))
            command = pipeline_command(name, conf)
            if command is None:
                continue
            servers[name] = (port, Program(command, core=0, log=folder / f"{name}.log"))
            wait_for(*servers[name], seconds=30)
        for _ in range(rounds):
            for count in (1, 100):
                body = json.dumps(RECORD) if count == 1 else json.dumps([RECORD] * count)
                with wrk_script(folder, body, "application/json") as script:
                    for name, (port, program) in servers.items():
                        before = program.cpu()
                        done = wrk(
                            f"http://127.0.0.1:{port}/bench.http",
                            connections=64,
                            seconds=seconds,
                            core=1,
                            script=script,
                        )
                        assert not done["errors"], (name, done)
                        rates.setdefault(str(count), {}).setdefault(name, []).append(done["rate"] * count)
                        micros.setdefault(str(count), {}).setdefault(name, []).append(
                            (program.cpu() - before) / done["requests"] * 1e6
                        )
    finally:
        for _, program in servers.values():
            program.stop()
    result: dict[str, Any] = {
        "records_a_second": {c: {n: spread(v) for n, v in row.items()} for c, row in rates.items()},
        "cpu_microseconds_a_request": {c: {n: spread(v) for n, v in row.items()} for c, row in micros.items()},
    }
    for peer in ("fluentd", "fluent_bit"):
        if peer in servers:
            result[f"times_{peer}"] = against(rates, peer)
    return result


GOALS = {
    "times_fluentd.1": -4.0,
    "times_fluentd.100": -2.5,
    "times_fluent_bit.1": -2.5,
    "times_fluent_bit.100": -3.0,
}
