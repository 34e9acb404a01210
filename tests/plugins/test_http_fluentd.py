"""With a real Fluentd at the other end."""

import asyncio
import contextlib
import json
import os
import signal

import pytest
from http_rig import source

from headrace.testing.plugin import need_fluentd

pytestmark = pytest.mark.peer


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
