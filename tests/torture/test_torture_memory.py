"""Events in memory while the destination is down: a reload and a zero-downtime restart lose none of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal

import pytest
from torture_rig import Sink, until

from headrace.testing.plugin import free_ports

CONF = """\
<system>
  workers {workers}
  root_dir {folder}/root
</system>
<source>
  @type http
  bind 127.0.0.1
  port {port}
</source>
<match t>
  @type http
  endpoint http://127.0.0.1:{target}/
  <format>
    @type json
  </format>
  <buffer>
    @type memory
    flush_interval 0.1s
    retry_wait 0.1s
    retry_max_interval 0.5s
    retry_forever true
  </buffer>
</match>
"""
EVENTS = 20


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGHUP, (2, 1)), (signal.SIGUSR2, (1, 1))])
async def test_the_new_workers_deliver_what_the_old_ones_had(headrace, prefix, seen, number, workers):
    port, target = free_ports(2)
    path, pid_file, log = prefix / "fluent.conf", prefix / "pid", prefix / "log"
    before, after = workers
    path.write_text(CONF.format(port=port, target=target, folder=prefix, workers=before))
    # As a daemon: after a zero-downtime restart the master is another process.
    process = headrace("fluentd", "-c", path, "-d", pid_file, "-o", log)
    await until(lambda: not process.running, "the daemon")
    assert process.wait() == 0, process.output
    try:
        for one in range(EVENTS):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            client.request("POST", "/t", json.dumps({"n": one}), {"Content-Type": "application/json"})
            assert client.getresponse().status == 200
            client.close()
        path.write_text(CONF.format(port=port, target=target, folder=prefix, workers=after))
        os.kill(int(pid_file.read_text()), number)
        await until(lambda: "handed over to the next worker" in log.read_text(), "the end of the old workers", 40)
        async with Sink(target) as sink:
            with contextlib.suppress(AssertionError):
                await until(lambda: len(sink.counts) >= EVENTS, "all events", 40)
            seen(f"{EVENTS} in memory, {number.name}: {len(sink.counts)} at the destination")
            assert sorted(sink.counts) == list(range(EVENTS)), log.read_text()[-3000:]
            assert set(sink.counts.values()) == {1}
        assert "are lost" not in log.read_text()
    finally:
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            await until(lambda: not pid_file.exists(), "the end")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
