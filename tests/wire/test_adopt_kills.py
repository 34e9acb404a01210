"""Fluentd's files are taken over by a process that is killed again and again: nothing is lost, hardly anything twice."""

import random
import time
from dataclasses import replace

import pytest
import wire_rig as rig

from headrace.pipeline.fluentfiles import ChunkMeta, write_meta
from headrace.pipeline.placeholders import Meta
from headrace.testing.origin import ok
from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

pytestmark = pytest.mark.slow

CONF = """
<system>
  root_dir FOLDER/root
</system>
<match t>
  @type http
  endpoint http://127.0.0.1:TARGET/t
  reuse_connections true
  <buffer tag>
    @type file
    path FOLDER/b
    retry_wait 0.1s
    retry_max_interval 0.2s
    retry_forever true
  </buffer>
</match>
"""
CHUNKS, EVENTS, KILLS = 400, 10, 6


def fill(folder):
    """Chunks as Fluentd leaves them; what this output formats is JSON, a line for each event."""
    folder.mkdir()
    for number in range(CHUNKS):
        chunk_id = number.to_bytes(16, "big")
        lines = [b'{"n":%d}\n' % (number * EVENTS + one) for one in range(EVENTS)]
        path = folder / f"buffer.{'bq'[number % 3 > 0]}{chunk_id.hex()}.log"
        path.write_bytes(b"".join(lines))
        moment = 1_700_000_000 + number
        path.with_name(f"{path.name}.meta").write_bytes(
            write_meta(ChunkMeta(chunk_id, EVENTS, moment, moment, Meta("t")))
        )


def test_every_event_arrives_however_often_the_process_is_killed(prefix, headrace):
    (target,) = free_ports(1)
    fill(prefix / "b")
    conf = prefix / "fluent.conf"
    conf.write_text(CONF.replace("TARGET", str(target)).replace("FOLDER", str(prefix)) + rig.NO_LOG_EVENTS)
    chance = random.Random(7)

    def arrived():
        return [record["n"] for record in rig.records(origin.requests)]

    # Slow enough that there is something left to be killed for, however fast the machine is.
    with rig.origin(lambda _request: replace(ok(), delay=0.005), port=target) as origin:
        kills = 0
        while kills < KILLS:
            before = len(origin.requests)
            process = headrace("headrace", "run", "--single", conf)
            wait_until(lambda before=before: len(origin.requests) > before + 2)
            time.sleep(chance.random() * 0.02)
            rig.kill(process)
            kills += 1
        headrace("headrace", "run", "--single", conf)
        wait_until(lambda: len(set(arrived())) == CHUNKS * EVENTS, timeout=60)
        wait_until(lambda: not any(one.name.startswith("buffer.") for one in (prefix / "b").iterdir()))
        assert len(arrived()) <= CHUNKS * EVENTS + KILLS * EVENTS
