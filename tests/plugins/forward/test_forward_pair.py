"""Our forward output and our forward source, with everything between them that both can do."""

import asyncio
import contextlib
import random
import socket

import pytest
import trustme
from forward_rig import QUIET, Direct, forward, lookup

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.event import NS, Batch
from headrace.testing.plugin import free_port


class Sender:
    """A running pipeline that ends in a forward output."""

    def __init__(self, pipeline):
        self.pipeline = pipeline

    async def emit(self, tag, *records, time=NS):
        waiting = self.pipeline.router.emit(tag, Batch.of([(time, record) for record in records]))
        if waiting is not None:
            await waiting

    @property
    def figures(self):
        return self.pipeline.stats()["plugins"]["out"]

    @property
    def node(self):
        (node,) = self.figures["nodes"].values()
        return node

    async def idle(self):
        async with asyncio.timeout(20):
            while self.figures["buffered"]:
                await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def sender(port, parameters="", buffer="", host="127.0.0.1", server=""):
    text = (
        f"<match **>\n@type forward\n@id out\n{parameters}\n<server>\nhost {host}\nport {port}\n{server}\n</server>\n"
        f"<buffer tag>\nflush_mode immediate\nretry_wait 0.02\nretry_max_interval 0.1\n{buffer}\n</buffer>\n</match>\n{QUIET}"
    )
    problems = Problems()
    tree = parse(text, "sender.conf", env={}, hostname="h", worker_id="0")
    pipeline = build_pipeline(tree, lookup=lookup, problems=problems)
    problems.raise_first()
    loop = asyncio.get_running_loop()
    await pipeline.start(loop, Clock(loop))
    try:
        yield Sender(pipeline)
    finally:
        async with asyncio.timeout(15):
            await pipeline.stop(3)


ACK = "require_ack_response true\n"
KEEP = "keepalive true\n"
SECURITY = "<security>\nself_hostname {}\nshared_key secret\n{}\n</security>\n"


@pytest.mark.parametrize("compress", ["text", "gzip", "zstd"])
@pytest.mark.parametrize("ack", ["", ACK])
async def test_events_arrive_as_they_were(compress, ack):
    odd = {"bytes": b"\xff\xfe", 1: "integer key", "huge": 1 << 80, "surrogate": "\udcff", "nested": {"a": [1, None]}}
    async with forward() as rig, sender(rig.port, f"heartbeat_type none\ncompress {compress}\n{KEEP}{ack}") as out:
        await out.emit("a.tag", odd, {"n": 2}, time=1_700_000_000_123_456_789)
        await out.idle()
        await rig.until(lambda: len(rig.records) == 2)
        assert rig.direct.events == [
            ("a.tag", 1_700_000_000_123_456_789, odd),
            ("a.tag", 1_700_000_000_123_456_789, {"n": 2}),
        ]
        assert out.node["acks"] == (1 if ack else 0)


async def test_many_chunks_on_one_connection_in_any_slices():
    noise = random.Random(5)
    async with forward() as rig, sender(rig.port, f"heartbeat_type none\n{KEEP}{ACK}ack_window 16") as out:
        for number in range(300):
            await out.emit(f"t.{number % 7}", {"n": number, "x": noise.randbytes(noise.randrange(3000))})
        await out.idle()
        assert sorted(record["n"] for record in rig.records) == list(range(300))
        assert out.node["opened"] == 1
        assert out.node["acks"] == out.node["sent"]


async def test_keys_users_and_heartbeats():
    users = "user_auth true\n<user>\nusername bob\npassword pw\n</user>"
    async with (
        forward(SECURITY.format("there", users)) as rig,
        sender(
            rig.port,
            "heartbeat_interval 0.05\n" + ACK + KEEP + SECURITY.format("here", ""),
            "",
            "127.0.0.1",
            "username bob\npassword pw",
        ) as out,
    ):
        await out.emit("t", {"n": 1})
        await out.idle()
        await rig.until(lambda: out.node["heartbeats"] >= 3)
        assert out.node["heartbeats_failed"] == 0
        assert len(rig.records) == 1


async def test_deny_keepalive_is_heard():
    async with (
        forward("deny_keepalive true\n" + SECURITY.format("there", "")) as rig,
        sender(rig.port, "heartbeat_type none\n" + ACK + KEEP + SECURITY.format("here", "")) as out,
    ):
        for number in range(4):
            await out.emit("t", {"n": number})
            await out.idle()
        assert [record["n"] for record in rig.records] == [0, 1, 2, 3]
        assert (out.node["opened"], out.node["stale"], out.node["resent"]) == (4, 0, 0)


async def test_deny_keepalive_without_a_handshake():
    async with forward("deny_keepalive true") as rig, sender(rig.port, "heartbeat_type none\n" + ACK + KEEP) as out:
        for number in range(20):
            await out.emit("t", {"n": number})
        await out.idle()
        assert sorted(record["n"] for record in rig.records) == list(range(20))


async def test_tls_with_client_certificates(tmp_path):
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("localhost", "client"):
        leaf = ca.issue_cert(name)
        leaf.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        leaf.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    server = (
        f"<transport tls>\ncert_path {tmp_path}/localhost.pem\nprivate_key_path {tmp_path}/localhost.key\n"
        f"client_cert_auth true\nca_path {tmp_path}/ca.pem\n</transport>"
    )
    client = (
        f"transport tls\ntls_cert_path {tmp_path}/ca.pem\ntls_client_cert_path {tmp_path}/client.pem\n"
        f"tls_client_private_key_path {tmp_path}/client.key\nheartbeat_interval 0.05\n"
    )
    async with forward(server) as rig, sender(rig.port, client + ACK + KEEP, server="name localhost") as out:
        for number in range(20):
            await out.emit("t", {"n": number, "x": "y" * 10_000})
        await out.idle()
        assert sorted(record["n"] for record in rig.records) == list(range(20))
        assert out.node["opened"] == 1
        await rig.until(lambda: out.node["heartbeats"] >= 2)
        assert out.node["heartbeats_failed"] == 0


async def test_heartbeats_by_udp():
    text = "heartbeat_type udp\nheartbeat_interval 0.05\nrecover_wait 0.2\n"
    async with forward() as rig, sender(rig.port, text) as out:
        (output,) = [plugin for plugin in out.pipeline.plugins if plugin.plugin_id == "out"]
        (node,) = output._nodes.values()
        node.detach()
        assert not out.node["available"]
        await rig.until(lambda: out.node["available"])


async def test_a_receiver_without_room_acknowledges_nothing_and_gets_everything_once():
    """F40: what is refused for lack of room is not acknowledged, and is stored once when it comes again."""
    match = (
        "@type script\n<buffer tag>\ntotal_limit_size 20k\nchunk_limit_size 4k\nflush_mode immediate\n"
        "overflow_action throw_exception\nretry_wait 0.02\nretry_max_interval 0.05\nretry_forever true\n</buffer>"
    )
    async with forward(match=match) as rig:
        script = next(plugin for plugin in rig.pipeline.plugins if plugin.type_ == "script")
        script.then = ConnectionError("down")
        text = f"heartbeat_type none\nack_response_timeout 1\n{ACK}{KEEP}"
        async with sender(rig.port, text, "chunk_limit_records 1") as out:
            for number in range(20):
                await out.emit("t", {"n": number, "x": "y" * 3000})
            await rig.until(lambda: out.node["failed"] or out.node["ack_timeouts"])
            acks = out.node["acks"]
            assert acks <= rig.pipeline.runners[0].stats()["buffered"] < 20
            script.then = None
            await out.idle()
            await rig.until(lambda: not rig.pipeline.runners[0].stats()["buffered"])
            assert sorted(record["n"] for record in script.got) == list(range(20))


async def test_a_sender_that_outlives_its_receiver():
    """The receiver ends and another begins on the same port: nothing is lost or repeated."""
    port = free_port()
    got = []
    async with sender(port, "heartbeat_interval 0.05\n" + ACK + KEEP) as out:
        for round_ in range(3):
            async with at(port) as direct:
                for number in range(10):
                    await out.emit("t", {"n": round_ * 10 + number})
                await out.idle()
            got += [record["n"] for _tag, _time, record in direct.events]
    assert sorted(got) == list(range(30))


@contextlib.asynccontextmanager
async def at(port):
    """A receiver on a port of our choice; what it got."""
    problems = Problems()
    text = (
        f"<source>\n@type forward\nbind 127.0.0.1\nport {port}\n</source>\n<match **>\n@type direct\n</match>\n{QUIET}"
    )
    pipeline = build_pipeline(
        parse(text, "receiver.conf", env={}, hostname="h", worker_id="0"), lookup=lookup, problems=problems
    )
    problems.raise_first()
    tcp = socket.socket()
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tcp.bind(("127.0.0.1", port))
    tcp.listen()
    tcp.setblocking(False)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", port))
    udp.setblocking(False)
    first, second = pipeline.listens
    loop = asyncio.get_running_loop()
    await pipeline.start(loop, Clock(loop), {first.key: tcp, second.key: udp})
    (direct,) = [plugin for plugin in pipeline.plugins if type(plugin) is Direct]
    try:
        yield direct
    finally:
        async with asyncio.timeout(15):
            await pipeline.stop(3)
