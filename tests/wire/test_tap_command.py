"""headrace tap against running workers: nobody waits for it, and it ends cleanly."""

import json
import os
import signal

import wire_rig as rig

from headrace.testing.plugin import free_port
from headrace.testing.process import wait_until

CONF = """
<source>
  @type http
  @id in
  bind 127.0.0.1
  port PORT
</source>
<filter **>
  @type record_transformer
  @id shape
  <record>
    seen yes
  </record>
</filter>
<match **>
  @type null
  @id out
</match>
"""


def start(prefix, headrace, *flags):
    port = free_port()
    conf = prefix / "fluent.conf"
    conf.write_text(CONF.replace("PORT", str(port)) + rig.NO_LOG_EVENTS)
    process = headrace("headrace", "run", conf, *flags)
    process.wait_for("worker is now running", count=2 if flags else 1)
    return port, process


def received(headrace, process):
    return rig.stats(headrace, process)["pipeline"]["plugins"]["out"]["received"]


def test_a_stopped_tap_holds_nobody_back(prefix, headrace):
    port, process = start(prefix, headrace)
    tap = headrace("headrace", "tap", "shape", "--json")
    body = json.dumps([{"text": "x" * 1000}] * 100).encode()

    def first():
        assert rig.post(port, "/t", b'{"first": 1}').status == 200
        return "first" in tap.output

    wait_until(first, "the tap shows an event")
    before = received(headrace, process)
    os.kill(tap.pid, signal.SIGSTOP)
    for _ in range(100):  # 10 MB: far more than every buffer between the two holds
        assert rig.post(port, "/t", body).status == 200
    assert received(headrace, process) - before == 10_000
    os.kill(tap.pid, signal.SIGCONT)
    wait_until(lambda: "events were not shown" in tap.output, "the tap tells what it left out")
    assert tap.stop(signal.SIGINT) == 0
    assert "left out" in tap.output
    assert rig.post(port, "/t", body).status == 200
    assert process.stop() == 0


def test_events_of_several_workers_come_together_and_end_at_the_limit(prefix, headrace):
    port, process = start(prefix, headrace, "--workers", "2")
    tap = headrace("headrace", "tap", "in", "--json", "--limit", "20")
    count = 0
    while tap.running:
        assert rig.post(port, "/a.b", json.dumps({"n": count}).encode()).status == 200
        count += 1
    assert tap.wait() == 0
    rows = [json.loads(line) for line in tap.output.splitlines() if line.startswith("{")]
    assert len(rows) == 20
    assert {row["worker"] for row in rows} <= {0, 1}
    assert {(row["component"], row["side"], row["tag"]) for row in rows} == {("in", "out", "a.b")}
    done = headrace.run("headrace", "tap", "nothing*")
    assert done.returncode == 1
    assert "there are: " in done.stderr
    done = headrace.run("headrace", "tap", "*", "--rate", "--for", "2.5", "--json")
    assert done.returncode == 0
    assert {json.loads(line)["component"] for line in done.stdout.splitlines()} >= {"in", "shape", "out"}
    assert process.stop() == 0


def test_the_end_of_headrace_ends_the_tap(prefix, headrace):
    port, process = start(prefix, headrace)
    tap = headrace("headrace", "tap", "in")

    def first():
        assert rig.post(port, "/t", b'{"first": "\\u001b[2J"}').status == 200
        return "first" in tap.output

    wait_until(first, "the tap shows an event")
    assert "\x1b" not in tap.output
    assert process.stop() == 0
    assert tap.wait() == 1
    assert "headrace has ended" in tap.output
