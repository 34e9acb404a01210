"""kill -9 on either side of a hop between two nodes: nothing acknowledged is lost, and nothing comes twice.

    client --> first --forward or http--> second --the same--> last --> file

The first two have file buffers and are killed; the last one lives, so that its file shows what it was given. The
chunk that was in flight at a kill is sent again with the id it had, and whoever has it leaves the repetition out.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal

import pytest
from torture_rig import Client, until

from headrace.testing.plugin import free_ports

SOURCES = {
    "forward": "@type forward\n  port {port}\n  bind 127.0.0.1",
    "http": "@type http\n  port {port}\n  bind 127.0.0.1\n  keepalive_timeout 60s",
}
OUTPUTS = {
    "forward": """@type forward
  require_ack_response true
  ack_response_timeout 10
  keepalive true
  heartbeat_interval 0.2
  hard_timeout 5
  recover_wait 0.2
  {more}
  <server>
    host 127.0.0.1
    port {target}
  </server>""",
    "http": """@type http
  endpoint http://127.0.0.1:{target}/${{tag}}
  reuse_connections true
  open_timeout 5
  read_timeout 5
  retryable_response_codes transient
  {more}
  <format>
    @type json
  </format>""",
}
NODE = """\
<source>
  {source}
</source>
<match **>
  @id out
  {output}
  <buffer tag>
    @type file
    path {folder}
    flush_mode interval
    flush_interval 0.02s
    flush_thread_count 2
    queued_chunks_limit_size 100000
    chunk_limit_records 20
    segment_size 8k
    sync_interval 0.05s
    retry_wait 0.05s
    retry_max_interval 0.2s
    retry_randomize false
    retry_forever true
  </buffer>
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""
LAST = """\
<source>
  {source}
</source>
<match **>
  @type file
  @id out
  path {folder}/out
  append true
  <format>
    @type json
  </format>
  <buffer>
    flush_mode interval
    flush_interval 0.05s
  </buffer>
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""


def written(folder):
    """The numbers in the last node's files, whole lines only."""
    found = []
    for path in sorted(folder.glob("out*")):
        lines = path.read_bytes().split(b"\n")
        found += [json.loads(line)["n"] for line in lines[:-1] if line]
    return found


@pytest.mark.parametrize("wire", ["forward", "http"])
async def test_kills_on_either_side_of_a_hop(nursery, prefix, scale, seen, wire):
    kills = scale("hop_kills", 10, 300)
    chance = random.Random(kills)
    entry, middle, end = free_ports(3)
    more = "compress gzip" if wire == "forward" else ""
    second_in, last_in = (SOURCES[wire].format(port=port) for port in (middle, end))
    first_conf = NODE.format(
        source=SOURCES["http"].format(port=entry),
        output=OUTPUTS[wire].format(target=middle, more=more),
        folder=prefix / "first",
    )
    second_conf = NODE.format(
        source=second_in, output=OUTPUTS[wire].format(target=end, more=""), folder=prefix / "second"
    )
    last = await nursery.start(LAST.format(source=last_in, folder=prefix))
    client = Client(entry)
    running = {conf: await nursery.begin(conf) for conf in (first_conf, second_conf)}
    client.start(pause=0.002)
    for number in range(kills):
        conf = chance.choice((first_conf, second_conf))
        node = running[conf]
        before = len(client.acked)
        if number % 3 and conf is first_conf:
            await until(lambda before=before: len(client.acked) > before, "an answer")
        await asyncio.sleep(chance.random() ** 2 * 0.3)
        await node.kill()
        assert node.signal == signal.SIGKILL, node.log.read_text()[-3000:]
        running[conf] = await nursery.begin(conf)
        seen.progress(number + 1, kills, f"{len(client.acked)} acknowledged")
    await running[first_conf].up()
    before = len(client.acked)
    await until(lambda: len(client.acked) > before, "an answer after the last kill")
    await client.stop()
    await until(lambda: client.acked <= set(written(prefix)), "everything acknowledged in the last node's files")
    for conf in (first_conf, second_conf):
        node = await running[conf].up()
        await emptied(node)
        await node.stop()
    await last.stop()
    numbers = written(prefix)
    doubled = len(numbers) - len(set(numbers))
    lost = client.acked - set(numbers)
    seen(f"{wire}, {kills} kills: {len(client.acked)} acknowledged, {len(lost)} lost, {doubled} twice")
    assert not lost
    assert not doubled
    assert len(client.acked) > kills


@pytest.mark.parametrize("wire", ["forward", "http"])
async def test_restarts_of_the_receiver_under_load(nursery, prefix, scale, seen, wire):
    """SIGTERM while messages come: what is acknowledged after it is in the buffer, what is not comes again."""
    rounds = scale("restarts", 5, 100)
    entry, middle, end = free_ports(3)
    first_conf = NODE.format(
        source=SOURCES["http"].format(port=entry),
        output=OUTPUTS[wire].format(target=middle, more=""),
        folder=prefix / "a",
    )
    second_conf = NODE.format(
        source=SOURCES[wire].format(port=middle), output=OUTPUTS[wire].format(target=end, more=""), folder=prefix / "b"
    )
    last = await nursery.start(LAST.format(source=SOURCES[wire].format(port=end), folder=prefix))
    client = Client(entry)
    first = await nursery.start(first_conf)
    second = await nursery.start(second_conf)
    client.start(pause=0.002)
    for number in range(rounds):
        before = len(written(prefix))
        await until(lambda before=before: len(written(prefix)) > before + 20, "events at the end")
        await second.stop()
        second = await nursery.start(second_conf)
        seen.progress(number + 1, rounds, f"{len(client.acked)} acknowledged")
    await client.stop()
    await until(lambda: client.acked <= set(written(prefix)), "everything acknowledged in the last node's files")
    for node in (first, second):
        await emptied(node)
        await node.stop()
    await last.stop()
    numbers = written(prefix)
    seen(f"{wire}, {rounds} restarts: {len(client.acked)} acknowledged, {len(numbers) - len(set(numbers))} twice")
    assert client.acked <= set(numbers)
    assert len(numbers) == len(set(numbers))


async def emptied(node):
    """Everything that the node holds is delivered."""
    for _ in range(600):
        if not (await node.stats())["out"]["buffered"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the buffer is not emptied")
