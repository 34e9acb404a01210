"""E.2: the HTTP output with connection reuse off and on, against nginx as a fast sink.

Plain TCP on loopback at a rate that saturates the sender; TLS 1.2 and 1.3 behind a relay that adds
20 ms to a round trip. nginx counts what it accepted and answered, so no figure is our own word.
"""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from common import BIN, HERE_RELAY, USER, Program, fluentd_command, free_port, ratios, spread, wait_for

SINK = """
worker_processes 1;
error_log stderr error;
pid logs/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls} ssl;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache off;
        ssl_session_tickets off;
        location / {{ return 200; }}
    }}
    server {{ listen 127.0.0.1:{status}; location / {{ stub_status; }} }}
}}
"""

SENDER = """
<source>
  @type sample
  sample {{"hello":"world"}}
  tag sample
  rate {rate}
</source>
<match **>
  @type http
  endpoint {endpoint}
  open_timeout 5
  reuse_connections {reuse}
  {extra}
  <format>
    @type json
  </format>
  <buffer>
    flush_interval 10s
    chunk_limit_records 1
    flush_thread_count 32
    {burst}
  </buffer>
</match>
"""


class Counters:
    """What the sink says of itself, asked on one connection that stays open, so that asking opens none."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self._asked = 0
        self.read()

    def read(self) -> tuple[int, int]:
        """(connections accepted, requests answered), those of asking left out of the requests."""
        self._connection.request("GET", "/")
        match = re.search(r"(\d+) (\d+) (\d+)", self._connection.getresponse().read().decode())
        assert match
        self._asked += 1
        return int(match[1]), int(match[3]) - self._asked

    def settled(self) -> int:
        """Connections accepted, once those of a sender that has ended have all come (a relay delays them)."""
        accepted, _ = self.read()
        while True:
            time.sleep(0.5)
            now, _ = self.read()
            if now == accepted:
                return now
            accepted = now


@contextlib.contextmanager
def sink(folder: pathlib.Path) -> Iterator[tuple[int, int, Counters]]:
    """nginx answering 200 to everything; gives the ports for plain and TLS, and its counters."""
    prefix = folder / "sink"
    (prefix / "logs").mkdir(parents=True)
    cert, key = prefix / "cert.pem", prefix / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(key),
            "-out",
            str(cert),
        ],
        check=True,
        capture_output=True,
    )
    port, tls, status = free_port(), free_port(), free_port()
    conf = prefix / "nginx.conf"
    conf.write_text(SINK.format(port=port, tls=tls, status=status, cert=cert, key=key))
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    with Program(
        [binary, "-p", str(prefix), "-c", str(conf), "-e", "/dev/stderr", "-g", f"daemon off; {USER}"],
        core=1,
        log=folder / "sink.log",
    ) as program:
        wait_for(status, program)
        yield port, tls, Counters(status)


def send(
    folder: pathlib.Path, name: str, *, status: Counters, seconds: float, settle: float = 3.0, **settings: Any
) -> dict[str, float]:
    """Run one sender against the sink; give requests a second and connections opened."""
    conf = folder / f"{name}.conf"
    settings.setdefault("extra", "")
    settings.setdefault("burst", "")
    conf.write_text(SENDER.format(**settings))
    command = fluentd_command(conf) if name.startswith("fluentd") else [str(BIN / "headrace-fluentd"), "-c", str(conf)]
    assert command
    accepted_at_start = status.settled()
    with Program(command, core=0, log=folder / f"{name}.log") as program:
        deadline = time.monotonic() + 30
        _, before = status.read()
        while status.read()[1] - before < 100 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(settle)
        _, before = status.read()
        cpu, start = program.cpu(), time.monotonic()
        time.sleep(seconds)
        accepted, after = status.read()
        taken = time.monotonic() - start
        used = program.cpu() - cpu
    requests = after - before
    return {
        "rate": requests / taken,
        "accepted": accepted - accepted_at_start,
        "cpu_share": used / taken,
        "requests": requests,
    }


def run(folder: pathlib.Path, *, quick: bool) -> dict[str, Any]:
    """Off and on in turn; Fluentd in the same rounds when its command is given."""
    rounds, seconds = (2, 3) if quick else (4, 6)
    runs: dict[str, list[dict[str, float]]] = {}
    with sink(folder) as (port, tls, status):
        relay_port = free_port()
        relay = [str(BIN / "python"), str(HERE_RELAY), str(relay_port), str(tls), "10"]
        with Program(relay, core=1, log=folder / "relay.log") as relaying:
            wait_for(relay_port, relaying)
            plain = f"http://127.0.0.1:{port}"
            slow = f"https://localhost:{relay_port}"
            for _ in range(rounds):
                for reuse in ("false", "true"):
                    word = "on" if reuse == "true" else "off"
                    rate = {"off": 20_000, "on": 60_000}[word]
                    runs.setdefault(f"plain_{word}", []).append(
                        send(
                            folder,
                            f"plain-{word}",
                            status=status,
                            seconds=seconds,
                            rate=rate,
                            endpoint=plain,
                            reuse=reuse,
                        )
                    )
                    if fluentd_command(folder):
                        runs.setdefault(f"fluentd_{word}", []).append(
                            send(
                                folder,
                                f"fluentd-{word}",
                                status=status,
                                seconds=seconds,
                                settle=5,
                                rate=5000,
                                endpoint=plain,
                                reuse=reuse,
                            )
                        )
                    for version in ("TLSv1_2", "TLSv1_3"):
                        extra = f"tls_verify_mode none\n  tls_version {version}"
                        runs.setdefault(f"{version}_{word}", []).append(
                            send(
                                folder,
                                f"{version}-{word}",
                                status=status,
                                seconds=seconds,
                                rate=3000,
                                endpoint=slow,
                                reuse=reuse,
                                extra=extra,
                            )
                        )
    rate = {name: [one["rate"] for one in row] for name, row in runs.items()}
    result: dict[str, Any] = {
        "requests_a_second": {name: spread(values) for name, values in rate.items()},
        "connections_accepted": {name: max(one["accepted"] for one in row) for name, row in runs.items()},
        "sender_cpu_share": {name: spread([one["cpu_share"] for one in row]) for name, row in runs.items()},
        "on_over_off": {k: ratios(rate[f"{k}_on"], rate[f"{k}_off"]) for k in ("plain", "TLSv1_2", "TLSv1_3")},
    }
    if "fluentd_on" in rate:
        result["times_fluentd"] = {
            word: ratios(rate[f"plain_{word}"], rate[f"fluentd_{word}"]) for word in ("off", "on")
        }
    return result


GOALS = {
    "on_over_off.plain": -2.0,
    "on_over_off.TLSv1_2": -2.5,
    "on_over_off.TLSv1_3": -1.8,
    "times_fluentd.on": -5.0,
    "times_fluentd.off": -5.0,
    "connections_accepted.plain_on": 32.0,
}
