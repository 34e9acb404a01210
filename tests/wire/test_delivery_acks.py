"""`ack_mode delivery` end to end: a client hears 200 when every required destination has its events."""

import json
import threading
import time

import wire_rig as rig

from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

CONF = """
<source>
  @type http
  bind 127.0.0.1
  port PORT
  ack_mode delivery
  ack_deadline DEADLINE
</source>
<match t>
  @type copy
  <store>
    @type file
    path FOLDER/out
    append true
    <format>
      @type json
    </format>
    <buffer>
      @type file
      path FOLDER/b-file
    </buffer>
  </store>
  <store>
    @type http
    endpoint http://127.0.0.1:TARGET/t
    <buffer>
      @type file
      path FOLDER/b-http
      retry_wait 0.1s
      retry_max_interval 0.2s
      retry_forever true
    </buffer>
  </store>
</match>
"""


def started(prefix, headrace, port, target, deadline):
    conf = prefix / "fluent.conf"
    text = CONF.replace("PORT", str(port)).replace("TARGET", str(target)).replace("FOLDER", str(prefix))
    conf.write_text(text.replace("DEADLINE", deadline) + rig.NO_LOG_EVENTS)
    process = headrace("headrace", "run", str(conf))
    rig.wait_listens(port, process)
    return process


def written(prefix):
    return [json.loads(line)["n"] for path in prefix.glob("out.*.log") for line in path.read_text().splitlines()]


def chunks(prefix, headrace):
    done = headrace.run("headrace", "buffers", "ls", prefix / "fluent.conf", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_destination_that_is_down_is_a_503_after_the_deadline(prefix, headrace):
    port, target = free_ports(2)
    process = started(prefix, headrace, port, target, "1s")
    assert rig.post(port, "/t", b'{"n": 1}').status == 503
    assert written(prefix) == [1]
    (row,) = chunks(prefix, headrace)
    assert row["attempts"] >= 1
    assert row["error"]
    with rig.origin(port=target) as origin:
        assert rig.post(port, "/t", b'{"n": 2}').status == 200
        wait_until(lambda: len(rig.records(origin.requests)) == 2)
        assert sorted(record["n"] for record in rig.records(origin.requests)) == [1, 2]
    assert written(prefix) == [1, 2]
    figures = rig.stats(headrace, process)
    assert rig.plugin(figures, "input")["acks_late"] == 1
    rig.kill(process)


def test_the_answer_waits_for_the_destination_to_come_back(prefix, headrace):
    port, target = free_ports(2)
    process = started(prefix, headrace, port, target, "30s")
    answers = []
    clients = [
        threading.Thread(target=lambda n=n: answers.append(rig.post(port, "/t", b'{"n": %d}' % n).status))
        for n in range(4)
    ]
    for client in clients:
        client.start()
    wait_until(lambda: sorted(written(prefix)) == [0, 1, 2, 3])
    time.sleep(0.2)  # an answer that did not wait would be here by now
    assert answers == []
    with rig.origin(port=target) as origin:
        for client in clients:
            client.join(30)
        assert answers == [200] * 4
        assert sorted(record["n"] for record in rig.records(origin.requests)) == [0, 1, 2, 3]
    rig.kill(process)
