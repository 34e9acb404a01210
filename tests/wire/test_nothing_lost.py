"""Nothing that was answered is lost: receivers that die, senders that are told to end, machines that stop."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading

import pytest
import wire_rig as rig

from headrace.testing.origin import ok
from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

RECEIVER = """\
<source>
  @type http
  port PORT
  bind 127.0.0.1
</source>
<match **>
  @type file
  path FOLDER/out
  append true
  <format>
    @type json
  </format>
  <buffer>
    @type file
    path FOLDER/received
    flush_mode interval
    flush_interval 0.2s
    flush_at_shutdown true
  </buffer>
</match>
"""

RELAY = """\
<source>
  SOURCE
</source>
<match **>
  @type http
  endpoint http://127.0.0.1:TARGET/t
  reuse_connections true
  <format>
    @type json
  </format>
  <buffer>
    BUFFER
    flush_mode immediate
    chunk_limit_records RECORDS
    flush_thread_count LANES
    retry_wait 0.1s
    retry_max_interval 0.5s
    retry_forever true
  </buffer>
</match>
"""


def receiver(prefix, port):
    conf = prefix / "receiver.conf"
    text = RECEIVER.replace("PORT", str(port)).replace("FOLDER", str(prefix))
    conf.write_text(text + rig.NO_LOG_EVENTS)
    return conf


def relay(prefix, source, target, *, buffer="@type memory", lanes=8, records=10):
    conf = prefix / "sender.conf"
    text = RELAY.replace("SOURCE", source).replace("TARGET", str(target)).replace("BUFFER", buffer)
    conf.write_text(text.replace("LANES", str(lanes)).replace("RECORDS", str(records)) + rig.NO_LOG_EVENTS)
    return conf


def http_source(port):
    return f"@type http\n  port {port}\n  bind 127.0.0.1"


def written(prefix):
    """The numbers in the receiver's files, as often as they came; a line that is being written is left out."""
    texts = [path.read_text().rpartition("\n")[0] for path in sorted(prefix.glob("out*.log"))]
    return [json.loads(line)["n"] for text in texts for line in text.splitlines()]


def numbers(origin):
    return [record["n"] for record in rig.records(origin.requests)]


def start_receiver(headrace, prefix, port):
    process = headrace("headrace", "run", receiver(prefix, port))
    rig.wait_listens(port, process)
    return process


def test_a_receiver_killed_in_the_middle(prefix, port, headrace):
    """Every event arrives at least once: what was not answered is sent again, what was answered is on its disk."""
    first = start_receiver(headrace, prefix, port)
    source = '@type sample\n  sample {"hello":"world"}\n  tag t\n  rate 500\n  auto_increment_key n'
    sender = headrace("headrace", "run", relay(prefix, source, port))
    wait_until(lambda: len(written(prefix)) > 100, "events")
    rig.kill(first)
    sender.wait_for("failed to flush")
    second = start_receiver(headrace, prefix, port)
    before = max(written(prefix))
    wait_until(lambda: max(written(prefix)) > before + 200, "events after the restart")
    emitted = rig.plugin(rig.stats(headrace, sender), "input_sample")["emitted"]
    assert sender.stop() == 0  # flushes what its memory holds
    assert second.stop() == 0
    arrived = set(written(prefix))
    assert len(arrived) >= emitted
    assert arrived == set(range(len(arrived)))


def test_a_receiver_replaced_while_the_connection_is_idle(prefix, headrace):
    """A connection whose peer went away is noticed before it is written to: no failure, nothing sent twice."""
    entry, port = free_ports(2)
    running = start_receiver(headrace, prefix, port)
    sender = headrace("headrace", "run", relay(prefix, http_source(entry), port, lanes=1))
    rig.wait_listens(entry, sender)
    for number in range(4):
        assert rig.post(entry, "/t", b'{"n":%d}' % number).status == 200
        wait_until(lambda number=number: number in written(prefix), f"event {number}")
        rig.kill(running)
        running = start_receiver(headrace, prefix, port)
    assert rig.post(entry, "/t", b'{"n":4}').status == 200
    figures = rig.plugin(rig.stats(headrace, sender), "output_http")
    assert sender.stop() == running.stop() == 0
    assert set(written(prefix)) == {0, 1, 2, 3, 4}  # killed between writing and noting it, it writes again
    assert "failed to flush" not in sender.output
    connections = figures["connections"]
    assert connections["failed"] == connections["resent"] == 0
    assert connections["opened"] == 5
    assert connections["discarded_stale"] == 4


class Load:
    """Clients that post numbered events until they are told to end, and remember which were answered with 200."""

    def __init__(self, port, clients=4):
        self.port = port
        self.acked: set[int] = set()
        self.wrong: list[int] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(client, clients)) for client in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self, number, step):
        while not self._end.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                while not self._end.is_set():
                    headers = {"Content-Type": "application/json"}
                    connection.request("POST", "/t", b'{"n":%d}' % number, headers)
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status == 200:
                        self.acked.add(number)
                    else:
                        self.wrong.append(answer.status)
                    number += step
            except (OSError, http.client.HTTPException):
                number += step  # unanswered: it may have been taken or not
                self._end.wait(0.02)
            finally:
                connection.close()

    def end(self):
        self._end.set()
        for thread in self._threads:
            thread.join(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=["TERM", "INT", "QUIT"])
def test_the_end_under_load_loses_nothing_that_was_answered(prefix, port, headrace, number):
    with rig.origin() as origin:
        conf = relay(prefix, http_source(port), origin.port)
        process = headrace("headrace", "run", "--workers", 2, conf)
        rig.wait_listens(port, process)
        load = Load(port)
        try:
            wait_until(lambda: len(load.acked) > 300, "answers")
            assert process.stop(number) == 0
        finally:
            load.end()
        assert load.wrong == []
        delivered = numbers(origin)
        assert len(load.acked) > 300
        assert load.acked <= set(delivered)
        assert len(delivered) == len(set(delivered))


def test_the_end_under_load_with_a_buffer_on_disk(prefix, port, headrace):
    """What was answered and not delivered is in the buffer, and the next start delivers it."""
    buffer = f"@type file\n    path {prefix}/buffer"
    with rig.origin([ok(status="503 Busy")]) as origin:
        conf = relay(prefix, http_source(port), origin.port, buffer=buffer)
        process = headrace("headrace", "run", conf)
        rig.wait_listens(port, process)
        load = Load(port)
        try:
            wait_until(lambda: len(load.acked) > 300, "answers")
            assert process.stop() == 0
        finally:
            load.end()
        assert load.wrong == []
        origin.script = [ok()]
        refused = len(origin.requests)
        again = headrace("headrace", "run", conf)
        wait_until(lambda: load.acked <= set(numbers_after(origin, refused)), "what was answered")
        assert again.stop() == 0
        delivered = numbers_after(origin, refused)
        assert len(delivered) == len(set(delivered))


def numbers_after(origin, count):
    return [record["n"] for record in rig.records(origin.requests[count:])]


def test_a_killed_process_finds_every_chunk_again(prefix, headrace):
    """A hundred one-record chunks of one tag: after kill -9 each is delivered once, in the order of writing."""
    entry, target = free_ports(2)
    buffer = f"@type file\n    path {prefix}/buffer"
    conf = relay(prefix, http_source(entry), target, buffer=buffer, lanes=1, records=1)
    process = headrace("headrace", "run", conf)
    rig.wait_listens(entry, process)
    with rig.Client(entry) as client:
        for number in range(100):
            body = b'{"n":%d}' % number
            answer = client.ask(
                b"POST /t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            assert answer.status == 200
    rig.kill(process)
    with rig.origin(port=target) as origin:
        again = headrace("headrace", "run", conf)
        wait_until(lambda: len(origin.requests) >= 100, "a hundred requests")
        assert again.stop() == 0
        assert numbers(origin) == list(range(100))
        assert origin.accepts == 1
        # Nothing is left for a third start.
        third = headrace("headrace", "run", conf)
        rig.wait_listens(entry, third)
        assert third.stop() == 0
        assert len(origin.requests) == 100


def test_reloads_under_load_lose_nothing_in_memory(prefix, port, headrace):
    """A worker that is replaced flushes its memory before it ends; its clients find the new one."""
    with rig.origin() as origin:
        process = headrace("headrace", "run", relay(prefix, http_source(port), origin.port))
        rig.wait_listens(port, process)
        load = Load(port)
        try:
            for generation in (2, 3):
                before = len(load.acked)
                wait_until(lambda before=before: len(load.acked) > before + 100, "answers")
                process.send(signal.SIGHUP)
                process.wait_for(f"generation {generation} serves")
            before = len(load.acked)
            wait_until(lambda: len(load.acked) > before + 100, "answers")
        finally:
            load.end()
        assert process.stop() == 0
        assert load.wrong == []
        delivered = numbers(origin)
        assert load.acked <= set(delivered)
        assert len(delivered) == len(set(delivered))


def test_a_worker_killed_under_load_with_a_buffer_on_disk(prefix, port, headrace):
    """The worker that takes its place delivers what it had answered; at least once."""
    buffer = f"@type file\n    path {prefix}/buffer"
    with rig.origin() as origin:
        process = headrace("headrace", "run", relay(prefix, http_source(port), origin.port, buffer=buffer))
        rig.wait_listens(port, process)
        load = Load(port)
        try:
            for times in (1, 2):
                before = len(load.acked)
                wait_until(lambda before=before: len(load.acked) > before + 100, "answers")
                (worker,) = workers(headrace, process)
                os.kill(worker, signal.SIGKILL)
                process.wait_for("worker is now running", count=times + 1)
            before = len(load.acked)
            wait_until(lambda: len(load.acked) > before + 100, "answers")
        finally:
            load.end()
        wait_until(lambda: load.acked <= set(numbers(origin)), "what was answered")
        assert process.stop() == 0
        assert load.wrong == []


def workers(headrace, process):
    """Pids of the workers."""
    figures = json.loads(headrace.run("headrace", "stats", process.pid, "--json").stdout)
    return [worker["pid"] for worker in figures["workers"]]
