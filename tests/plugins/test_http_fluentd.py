"""With a real Fluentd at the other end."""

import asyncio
import contextlib
import json
import os
import signal

import pytest
from http_rig import output, source

from headrace.pipeline.event import Batch
from headrace.testing.plugin import free_port, need_fluentd

pytestmark = pytest.mark.fluentd


@contextlib.asynccontextmanager
async def fluentd(folder, configuration):
    """A running Fluentd; ended with its whole process group."""
    (folder / "fluent.conf").write_text(configuration)
    with (folder / "fluentd.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *need_fluentd(),
            "-c",
            str(folder / "fluent.conf"),
            "--no-supervisor",
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield folder / "fluentd.log"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(20):
                await child.wait()
        except TimeoutError:
            os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


async def until(condition, log, seconds=60):
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(log.read_text(errors="replace"))


RECORDS = [{"m": "\u00e9; &=+%", "n": 12345678901234567890, "nested": {"a": [1, None, True]}}, {"empty": {}}]

FORMATS = {
    "ndjson": "",
    "array": "json_array true",
    "gzip": "compress gzip",
    "msgpack": "content_type application/msgpack\n<format>\n@type msgpack\n</format>",
}


@pytest.mark.parametrize("parameters", FORMATS.values(), ids=FORMATS)
async def test_fluentd_sends_to_us(tmp_path, parameters):
    async with source() as (plugin, taken):
        sender = f"""
            <source>
              @type sample
              sample {json.dumps(RECORDS)}
              tag sample
              rate 10
            </source>
            <match sample>
              @type http
              endpoint http://127.0.0.1:{plugin.bound}
              reuse_connections true
              {parameters}
              <buffer>
                flush_interval 1s
                flush_thread_count 1
              </buffer>
            </match>
        """
        async with fluentd(tmp_path, sender) as log:
            await until(lambda: len(taken.records) >= 20 and len(taken.batches) > 1, log)
        # An empty path is "/" on the wire, so the tag is empty: what Fluentd's own source makes of it.
        assert set(taken.tags) == {""}
        assert all(record in RECORDS for record in taken.records)
        assert plugin.stats()["accepted"] == 1
        assert not plugin.stats()["refused"]


@pytest.mark.parametrize("parameters", FORMATS.values(), ids=FORMATS)
async def test_we_send_to_fluentd(tmp_path, parameters):
    port = free_port()
    receiver = f"""
        <source>
          @type http
          port {port}
          bind 127.0.0.1
        </source>
        <match a.b>
          @type stdout
        </match>
    """
    async with fluentd(tmp_path, receiver) as log:
        await until(lambda: "worker is now running" in log.read_text(), log)
        text = f"""
            endpoint http://localhost:{port}/a/b
            reuse_connections true
            {parameters}
            <buffer>
              flush_mode immediate
            </buffer>
        """
        async with output(text) as (running, emit):
            for _ in range(3):
                await emit("t", Batch.of([(1, record) for record in RECORDS]))
                await running.idle()
            assert running.failures() == 0
            assert running.stats()["connections"] == {
                "opened": 1, "reused": 2, "discarded_stale": 0, "failed": 0, "replaced": 0, "resent": 0, "idle": 1,
            }  # fmt: skip

        def arrived():
            return [line.split(" a.b: ")[1] for line in log.read_text().splitlines() if " a.b: " in line]

        await until(lambda: len(arrived()) == 6, log)
        assert [json.loads(line) for line in arrived()] == RECORDS * 3
