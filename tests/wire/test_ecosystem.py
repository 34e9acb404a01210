"""Plugins of the ecosystem in a real process: figures of two workers over a reload, the journal to Loki."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request

import wire_rig as rig

from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

CONF = """
<system>
  workers 2
</system>
<source>
  @type prometheus
  port PORT
</source>
<source>
  @type prometheus_output_monitor
  interval 0
</source>
<source>
  @type http
  bind 127.0.0.1
  port SOURCE
</source>
<filter kubernetes.**>
  @type kubernetes_metadata
  secret_dir /nowhere
</filter>
<filter **>
  @type prometheus
  <metric>
    name seen_records
    type counter
    desc Records
    <labels>
      tag ${tag_parts[0]}
    </labels>
  </metric>
</filter>
<match **>
  @type loki
  @id loki
  url http://127.0.0.1:TARGET
  line_format json
  extra_labels {"from":"wire"}
  <label>
    pod $.kubernetes.pod_name
  </label>
  <buffer>
    flush_mode immediate
    retry_wait 0.1s
  </buffer>
</match>
"""

TAG = f"kubernetes.var.log.containers.web_prod_nginx-{'a' * 64}.log"


def neighbours():
    """The first of two free ports that follow each other."""
    for _ in range(100):
        (port,) = free_ports(1)
        with socket.socket() as next_one:
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports side by side")


def figures(port, path="/metrics"):
    """Name with labels -> value; None while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return None
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def send(port, tag, record):
    body = json.dumps(record).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{tag}", data=body, headers={"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=10).close()


def lines(origin):
    return [
        (stream["stream"], json.loads(line))
        for request in origin.requests
        for stream in json.loads(request.body)["streams"]
        for _time, line in stream["values"]
    ]


def test_figures_of_two_workers_over_a_reload(prefix, port, headrace):
    base = neighbours()
    with rig.origin() as origin:
        text = CONF.replace("PORT", str(base)).replace("SOURCE", str(port)).replace("TARGET", str(origin.port))
        (prefix / "fluent.conf").write_text(text)
        process = headrace("headrace", "run", prefix / "fluent.conf")
        rig.wait_listens(port, process)
        for number in range(20):
            send(port, TAG, {"n": number})
        wait_until(lambda: len(lines(origin)) == 20, "20 lines in Loki")
        assert sorted(line["n"] for _, line in lines(origin)) == list(range(20))
        assert {json.dumps(stream) for stream, _ in lines(origin)} == {'{"pod": "web", "from": "wire"}'}
        assert lines(origin)[0][1]["kubernetes"] == {"container_name": "nginx", "namespace_name": "prod"}
        total = figures(base, "/aggregated_metrics")
        assert figures(base + 1, "/aggregated_metrics").keys() == total.keys()
        seen = {name: value for name, value in total.items() if name.startswith("seen_records")}
        assert sum(seen.values()) == 20
        parts = [figures(base + worker) for worker in (0, 1)]
        own = [f'seen_records{{tag="kubernetes",worker_id="{worker}"}}' for worker in (0, 1)]
        assert [part.get(name, 0.0) for part, name in zip(parts, own, strict=True)] == [seen.get(n, 0.0) for n in own]
        emitted = [
            value for name, value in total.items() if re.match(r"fluentd_output_status_emit_records.*loki", name)
        ]
        assert sum(emitted) == 20
        process.send(signal.SIGHUP)
        process.wait_for("generation 2 serves")
        wait_until(lambda: sum((figures(base, "/aggregated_metrics") or {"": 1.0}).values()) >= 0, "figures again")
        send(port, TAG, {"n": 100})
        wait_until(lambda: len(lines(origin)) == 21, "a line after the reload")
        assert process.stop(signal.SIGQUIT) == 0


JOURNAL = """
<source>
  @type systemd
  @id journal
  path FOLDER
  read_from_head true
  tag journal
  <storage>
    path FOLDER/cursor.json
    persistent true
  </storage>
  <entry>
    fields_lowercase true
  </entry>
</source>
<match journal>
  @type loki
  url http://127.0.0.1:TARGET
  line_format json
  extra_labels {"from":"journal"}
  <buffer>
    flush_mode immediate
  </buffer>
</match>
"""

SCRIPT = """#!PYTHON
import sys, time
after = [text for text in sys.argv if text.startswith("--after-cursor=")]
first = int(after[0].rpartition("=")[2]) + 1 if after else 0
for number in range(first, first + 5):
    print(f"__CURSOR=i={number}\\n__REALTIME_TIMESTAMP={1700000000000000 + number}\\nMESSAGE=line {number}\\n", flush=True)
time.sleep(60)
"""


def test_the_journal_goes_on_where_it_was(prefix, headrace):
    program = prefix / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(SCRIPT.replace("PYTHON", sys.executable))
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    with rig.origin() as origin:
        text = JOURNAL.replace("FOLDER", str(prefix)).replace("TARGET", str(origin.port))
        (prefix / "fluent.conf").write_text(text)
        for wanted in (5, 10):
            process = headrace("headrace", "run", prefix / "fluent.conf", env=env)
            wait_until(lambda wanted=wanted: len(lines(origin)) >= wanted, f"{wanted} lines\n{process.output}")
            assert process.stop(signal.SIGQUIT) == 0
        assert [line["message"] for _, line in lines(origin)] == [f"line {number}" for number in range(10)]
