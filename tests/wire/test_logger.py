"""Sources of messages and commands in real processes: logger(1) as the client, several workers, reloads, the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request

import pytest
import wire_rig as rig

from headrace.testing.plugin import free_port
from headrace.testing.process import wait_until

CONF = """\
<system>
  workers 2
</system>
<source>
  @type syslog
  port PORT
  bind 127.0.0.1
  tag udp
  <parse>
    message_format auto
  </parse>
</source>
<source>
  @type syslog
  port PORT
  bind 127.0.0.1
  tag tcp
  <transport tcp>
  </transport>
  <parse>
    message_format auto
  </parse>
</source>
<source>
  @type syslog
  port COUNTED
  bind 127.0.0.1
  tag counted
  frame_type octet_count
  <transport tcp>
  </transport>
  <parse>
    message_format rfc5424
    parser_type string
  </parse>
</source>
<match **>
  @type stdout
  <format>
    @type stdout
    output_type json
  </format>
</match>
"""


@pytest.fixture
def run(headrace):
    def start(text, *ready, name="sources.conf"):
        conf = headrace.prefix / name
        conf.write_text(text + rig.NO_LOG_EVENTS)
        process = headrace("headrace", "run", conf)
        for line in ready or ("worker is now running",):
            process.wait_for(line)
        return process

    return start


def events(process, tag):
    """The records that were printed with a tag."""
    marker = f" {tag}: "
    return [json.loads(line.partition(marker)[2]) for line in process.output.splitlines() if marker in line]


@pytest.mark.skipif(shutil.which("logger") is None, reason="needs logger(1)")
@pytest.mark.parametrize("form", ["--rfc3164", "--rfc5424"])
def test_logger(run, form):
    port, counted = free_port(), free_port()
    process = run(CONF.replace("PORT", str(port)).replace("COUNTED", str(counted)))
    process.wait_for("worker is now running", count=2)

    def log(*flags, port=port, text="hello, ☃: 5"):
        command = [
            "logger",
            "-n",
            "127.0.0.1",
            "-P",
            str(port),
            "-t",
            "prog",
            "-p",
            "local3.warning",
            form,
            *flags,
            text,
        ]
        subprocess.run(command, check=True, timeout=20)

    log("-d")
    log("-T")
    wanted = [("udp", ("-d",), port), ("tcp", ("-T",), port)]
    if form == "--rfc5424":
        log("-T", "--octet-count", port=counted)
        wanted.append(("counted", (), counted))
    for tag, _flags, _port in wanted:
        process.wait_for(f" {tag}.local3.warn: ")
        (record,) = events(process, f"{tag}.local3.warn")
        assert record["message"] == "hello, ☃: 5"
        assert record["ident"] == "prog"
    assert process.stop() == 0


RELOADED = """\
<source>
  @type tcp
  port PORT
  bind 127.0.0.1
  tag numbers.tcp
  <parse>
    @type json
  </parse>
</source>
<source>
  @type udp
  port PORT
  bind 127.0.0.1
  tag numbers.udp
  <parse>
    @type json
  </parse>
</source>
<match numbers.**>
  @type file
  path FOLDER/out
  append true
  <format>
    @type json
  </format>
  <buffer>
    @type file
    path FOLDER/buffer
    flush_mode interval
    flush_interval 0.1s
  </buffer>
</match>
"""


def test_numbers_over_reloads_each_once(run, headrace):
    port = free_port()
    process = run(RELOADED.replace("PORT", str(port)).replace("FOLDER", str(headrace.prefix)))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.connect(("127.0.0.1", port))
    tcp = socket.create_connection(("127.0.0.1", port))
    count = 600
    for number in range(count):
        udp.send(b'{"udp":%d}' % number)
        tcp.sendall(b'{"tcp":%d}\n' % number)
        if number in {200, 400}:
            process.send(signal.SIGHUP)
            process.wait_for("serve", count=1 + (number > 200))
            tcp.close()  # as a client that sees the end of the old worker's side
            tcp = socket.create_connection(("127.0.0.1", port))
    udp.close()
    tcp.close()

    def numbers(name):
        found = []
        for path in headrace.prefix.glob("out*"):
            if path.is_file():
                found += [json.loads(line) for line in path.read_text().splitlines()]
        return sorted(record[name] for record in found if name in record)

    wait_until(lambda: len(numbers("udp")) + len(numbers("tcp")) >= 2 * count, "all numbers")
    assert numbers("tcp") == list(range(count))
    assert numbers("udp") == list(range(count))
    assert process.stop() == 0


COMMANDS = """\
<source>
  @type exec
  command echo started $$; exec sleep 300
  tag once
  format none
</source>
<source>
  @type exec
  command ["echo", "again"]
  run_interval 0.1
  tag often
  format none
</source>
<match often>
  @type exec_filter
  command sed -u s/again/filtered/
  in_keys message
  out_keys message
  tag back
  <buffer>
    flush_interval 0.05
  </buffer>
</match>
<match **>
  @type stdout
  <format>
    @type stdout
    output_type json
  </format>
</match>
"""


def test_commands_in_a_worker_end_with_it(run):
    process = run(COMMANDS)
    process.wait_for(' once: {"message":"started ')
    process.wait_for(' back: {"message":"filtered"}', count=3)
    child = int(events(process, "once")[0]["message"].split()[1])
    os.kill(child, 0)
    assert process.stop() == 0
    wait_until(lambda: not os.path.exists(f"/proc/{child}"), "the end of the command")
    assert "Traceback" not in process.output


@pytest.mark.skipif(shutil.which("logger") is None, reason="needs logger(1)")
def test_the_example(headrace):
    port, figures = free_port(), free_port()
    text = (rig.EXAMPLES / "syslog.conf").read_text().replace("port 5140", f"port {port}")
    conf = headrace.prefix / "syslog.conf"
    conf.write_text(text.replace("port 24220", f"port {figures}"))
    process = headrace("headrace", "run", conf)
    process.wait_for("worker is now running")
    for flag in ("-d", "-T"):
        command = ["logger", "-n", "127.0.0.1", "-P", str(port), flag, "-p", "daemon.err", f"by {flag}"]
        subprocess.run(command, check=True, timeout=20)

    def collected():
        files = [path for path in headrace.prefix.glob("collected*") if path.is_file()]
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    wait_until(lambda: len(collected()) == 2, "both messages")
    assert sorted(record["message"] for record in collected()) == ["by -T", "by -d"]
    assert {(record["facility"], record["severity"]) for record in collected()} == {("daemon", "err")}
    with urllib.request.urlopen(f"http://127.0.0.1:{figures}/api/plugins.json?@id=collected", timeout=10) as answer:
        (output,) = json.load(answer)["plugins"]
    assert output["emit_records"] == 2
    assert process.stop() == 0
