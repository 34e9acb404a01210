"""Reloads of a running receiver: every request that was answered is an event that came out."""

from __future__ import annotations

import http.client
import signal
import threading

from headrace.testing.process import wait_until

CONF = """\
<source>
  @type http
  bind 127.0.0.1
  port PORT
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
    path FOLDER/buffer
    flush_mode interval
    flush_interval 0.2s
    flush_at_shutdown true
  </buffer>
</match>
"""


def post(connection, number):
    connection.request("POST", "/t", f'{{"n":{number}}}', {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_reload_loses_nothing_that_was_answered(prefix, port, headrace):
    conf = prefix / "fluent.conf"
    conf.write_text(CONF.replace("PORT", str(port)).replace("FOLDER", str(prefix)))
    process = headrace("fluentd", "-c", conf, "--workers", 2)
    process.wait_for("worker is now running", count=2)
    done = threading.Event()
    answered: list[list[int]] = [[], [], []]
    wrong: list[object] = []

    def load(client):
        number = client
        while not done.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            used = 0
            try:
                while used < 20:
                    status = post(connection, number)
                    if status != 200:
                        wrong.append(status)
                    answered[client].append(number)
                    number += 3
                    used += 1
            except OSError as error:
                # The old worker may close a kept connection while it is idle (RFC 9112 9.5): never a fresh one.
                if not used:
                    wrong.append(error)
            finally:
                connection.close()

    clients = [threading.Thread(target=load, args=(client,)) for client in range(3)]
    for client in clients:
        client.start()
    try:
        for generation in (2, 3):
            process.send(signal.SIGHUP)
            process.wait_for(f"generation {generation} serves")
        wait_until(lambda: all(len(numbers) > 50 for numbers in answered))
    finally:
        done.set()
        for client in clients:
            client.join()
    assert process.stop() == 0
    written = "".join(path.read_text() for path in prefix.glob("out*.log"))
    assert wrong == []
    missing = {number for numbers in answered for number in numbers if f'{{"n":{number}}}' not in written}
    assert missing == set()
