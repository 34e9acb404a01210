"""One configuration, one input: Fluentd and headrace-fluentd print the same events."""

from __future__ import annotations

import json
import socket
import time

import msgpack
import pytest
import wire_rig as rig

from headrace.testing.plugin import free_port, need_fluentd
from headrace.testing.process import wait_until

pytestmark = pytest.mark.fluentd

CONF = """\
<source>
  @type tcp
  port TCP
  bind 127.0.0.1
  tag out.tcp
  delimiter "|"
  message_length_limit 40
  source_address_key from
  <parse>
    @type json
  </parse>
  <extract>
    tag_key to
  </extract>
</source>
<source>
  @type udp
  port UDP
  bind 127.0.0.1
  tag out.udp
  message_length_limit 8
  <parse>
    @type regexp
    expression /^(?<word>\\w+) ?(?<rest>.*)$/
  </parse>
</source>
<source>
  @type unix
  path FOLDER/s.sock
</source>
<source>
  @type exec
  command printf 'a\\t1700000000\\tout.exec\\nb\\t1700000001\\tout.exec\\n'
  keys name,time,tag
  tag_key tag
  time_key time
</source>
<source>
  @type exec
  command echo '{"m":1}{"m":{"deep":[1,"x"]}}'
  tag filtered
  format json
</source>
<match filtered>
  @type exec_filter
  command sed -u s/deep/shallow/
  tag out.filtered
  in_keys m
  out_keys m
  <buffer>
    flush_interval 0.2
  </buffer>
</match>
<match out.**>
  @type stdout
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""
EXPECTED = 12


def events(process):
    """(tag, record) of every event that was printed, sorted."""
    found = []
    for line in process.output.splitlines():
        head, brace, rest = line.partition(": {")
        if brace and " out." in head and "[" not in head:
            found.append((head.split()[-1], json.loads("{" + rest)))
    return sorted(found, key=repr)


def send(folder, tcp, udp):
    with socket.create_connection(("127.0.0.1", tcp)) as sock:
        sock.sendall(b'{"n":1}|{"n":2,"to":"out.extracted"}|{"n":"' + b"x" * 50 + b'"}|nonsense|{"n":')
        sock.sendall(b"3}|{}|")
        time.sleep(0.2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for text in (b"one two\n", b"toolong for it", b"!", b"word"):
            sock.sendto(text, ("127.0.0.1", udp))
            time.sleep(0.01)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"{folder}/s.sock")
        sock.sendall(msgpack.packb(["out.unix", 1_700_000_000, {"u": 1}]))
        time.sleep(0.2)


def test_the_same_events(headrace):
    command = need_fluentd()
    printed = []
    for name in ("theirs", "ours"):
        folder = headrace.prefix / name
        folder.mkdir()
        tcp, udp = free_port(), free_port()
        text = CONF.replace("TCP", str(tcp)).replace("UDP", str(udp)).replace("FOLDER", str(folder))
        conf = folder / "f.conf"
        conf.write_text(text)
        process = headrace.start([*command, "-c", str(conf)]) if name == "theirs" else headrace("fluentd", "-c", conf)
        process.wait_for("worker is now running", timeout=60)
        rig.wait_listens(tcp, process)
        wait_until((folder / "s.sock").exists)
        send(folder, tcp, udp)
        try:
            wait_until(lambda one=process: len(events(one)) >= EXPECTED)
        except AssertionError:
            pytest.fail(process.output)
        printed.append(events(process))
        process.stop()
    assert printed[0] == printed[1]
    assert len(printed[1]) == EXPECTED
