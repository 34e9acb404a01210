"""The forward output at its ends: <secondary>, other outputs' <secondary>, shutdown, restart with the same id."""

import asyncio
import logging
import socket
import struct

import node_rig as rig
import pytest
import uvloop
from http_rig import problems_of
from node_rig import Node, chunk_id, server_text

from headrace.core.clock import Clock
from headrace.core.stream import Stream
from headrace.errors import ConnectionFailed
from headrace.pipeline.event import Batch
from headrace.plugins.forward.messages import chunk_option, encode_ack
from headrace.plugins.out_forward.link import Link
from headrace.testing.contracts import check_output
from headrace.testing.pipelines import Kit

ACK = "require_ack_response true\nkeepalive true\nheartbeat_type none\n"


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


async def test_the_contract():
    async with Node() as node:
        await check_output(f"<match **>\n@type forward\nkeepalive true\n{server_text(node)}\n</match>")
    await check_output("<match **>\n@type forward\n<server>\nhost 127.0.0.1\nport 1\n</server>\n</match>")


class Real(Kit):
    """A pipeline with the real clock."""

    async def begin(self):
        self.problems.raise_first()
        loop = asyncio.get_running_loop()
        await self.pipeline.start(loop, Clock(loop))
        return self


DEAD = "<server>\nhost 127.0.0.1\nport 1\n</server>"
BUFFER = "<buffer {}>\nflush_mode immediate\nretry_wait 0.02\nretry_max_times 1\n{}\n</buffer>"


def test_a_configuration_from_before_the_buffer_section(tmp_path):
    text = (
        f"<match **>\n@type forward\nbuffer_type file\nbuffer_path {tmp_path}/b\nflush_interval 5s\nnum_threads 3\n"
        "buffer_chunk_limit 1m\nretry_limit 7\nrequire_ack_response\n<server>\nhost a\n</server>\n</match>"
    )
    kit = Kit(text)
    assert kit.errors == []
    section = kit.pipeline.runners[0].section
    assert (section.persistent, section.flush_interval, section.flush_thread_count) == (True, 5.0, 3)
    assert (section.chunk_limit_size, section.retry_max_times) == (1 << 20, 7)
    assert section.keys.tag


async def test_a_secondary_takes_what_no_node_takes():
    async with Node() as node:
        text = (
            f"<match **>\n@type forward\nheartbeat_type none\n{DEAD}\n{BUFFER.format('tag', '')}\n"
            f"<secondary>\n{ACK}{server_text(node)}</secondary>\n</match>"
        )
        kit = await Real(text).begin()
        await kit.emit("a.tag", {"n": 1})
        await until(lambda: node.messages)
        assert node.messages[0][0] == "a.tag"
        assert node.numbers == [1]
        await until(lambda: not kit.stats()["buffered"])
        await kit.pipeline.stop(5)


async def test_as_secondary_of_an_output_that_keeps_events():
    async with Node() as node:
        text = (
            f"<match **>\n@type script\n{BUFFER.format('tag', 'retry_max_times 0')}\n"
            f"<secondary>\n@type forward\n{ACK}{server_text(node)}</secondary>\n</match>"
        )
        kit = await Real(text.replace("retry_max_times 1\n", "")).begin()
        kit.script.then = ConnectionError("down")
        await kit.emit("a.tag", {"n": 1}, {"n": 2})
        await until(lambda: node.messages)
        assert node.numbers == [1, 2]
        await kit.pipeline.stop(5)


def test_as_secondary_of_an_output_that_formats_text():
    text = (
        "<match **>\n@type http\nendpoint http://a/\n<buffer tag>\n</buffer>\n"
        f"<secondary>\n@type forward\n{DEAD}\n</secondary>\n</match>"
    )
    errors, _ = problems_of("output", text)
    assert any("formats its chunks as no forward node can read them" in error for error in errors), errors


async def test_what_is_acknowledged_before_the_end_is_not_sent_again(tmp_path):
    """A stop waits for acknowledgements that are due, and keeps what was not acknowledged."""
    text = f"<match **>\n@type forward\n@id out\n{{}}\n{BUFFER.format('tag', f'@type file{chr(10)}path {tmp_path}/b')}\n</match>"
    async with Node() as node:
        node.then = "hold"
        kit = await Real(text.format(ACK + server_text(node))).begin()
        for number in range(3):
            await kit.emit("t", {"n": number})
        await until(lambda: len(node.late) == 3)
        stopping = asyncio.ensure_future(kit.pipeline.stop(10))
        await asyncio.sleep(0.1)
        node.release()
        async with asyncio.timeout(5):
            await stopping
        assert kit.stats()["buffered"] == 0
        assert node.numbers == [0, 1, 2]


async def test_a_chunk_has_the_same_id_after_a_restart(tmp_path):
    text = f"<match **>\n@type forward\n@id out\n{{}}\n{BUFFER.format('tag', f'@type file{chr(10)}path {tmp_path}/b')}\n</match>"
    async with Node() as node:
        node.then = "hold"
        kit = await Real(text.format(ACK + server_text(node))).begin()
        await kit.emit("t", {"n": 1}, {"n": 2})
        await until(lambda: node.late)
        await kit.pipeline.stop(0.1)
        before = asyncio.all_tasks()
        node.then = "ack"
        again = await Real(text.format(ACK + server_text(node))).begin()
        await until(lambda: len(node.messages) == 2)
        first, second = node.messages
        assert chunk_id(first) == chunk_id(second)
        assert rig.raw_entries(first) == rig.raw_entries(second)
        await until(lambda: again.stats()["buffered"] == 0)
        await again.pipeline.stop(5)
        await until(lambda: not [task for task in asyncio.all_tasks() - before if not task.done()])


async def test_a_lane_that_is_cancelled_while_it_dials_leaves_nothing(caplog):
    caplog.set_level(logging.ERROR)
    async with Node(shared_key="secret") as node:  # it waits for a PING that never comes
        text = f"<match **>\n@type forward\n{ACK}<security>\nself_hostname a\nshared_key secret\n</security>\n{server_text(node)}\n{BUFFER.format('tag', '')}\n</match>"
        node.greet = hang
        kit = await Real(text).begin()
        await kit.emit("t", {"n": 1})
        await until(lambda: node.accepts)
        before = [task for task in asyncio.all_tasks() if "lane" in task.get_name()]
        await kit.pipeline.stop(0.2)
        assert all(task.done() for task in before)
        await until(lambda: not node.open)


async def hang(_writer, following):
    await following()


@pytest.mark.parametrize("lanes", [1, 4])
async def test_many_chunks_over_an_unreliable_node_come_at_least_once_and_ids_tell_repetitions(lanes):
    async with Node() as node:
        node.answers = ["ack", "close", "ack", "reset", "wrong", "ack"] * 10
        text = ACK + "ack_window 4\n" + server_text(node)
        buffer = f"flush_mode immediate\nretry_wait 0.01\nretry_max_interval 0.02\nretry_randomize false\nflush_thread_count {lanes}"
        async with rig.output(text, buffer=buffer) as (running, emit):
            for number in range(200):
                await emit("t", Batch.one(1, {"n": number}))
            await running.idle()
        by_id = {chunk_id(message): rig.events(message) for message in node.messages}
        numbers = [record["n"] for events in by_id.values() for _time, record in events]
        assert sorted(numbers) == list(range(200)), "each id once is each event once"


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_reset_that_comes_with_an_acknowledgement_is_noticed(factory):
    """Workers run on uvloop, which tells of a reset once: together with the bytes that came before it."""

    async def scenario():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        link = Link(Stream(ours, loop, Clock(loop)), "node")
        first, second = link.expect(b"1" * 16), link.expect(b"2" * 16)
        await asyncio.sleep(0.01)
        theirs.sendall(encode_ack(chunk_option(b"1" * 16)))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        async with asyncio.timeout(10):
            await first
            with pytest.raises(ConnectionFailed):
                await second
        assert not link.alive

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())
