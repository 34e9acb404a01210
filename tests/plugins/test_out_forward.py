"""The forward output against scripted nodes: what is on the wire, who gets what, and what comes back."""

import asyncio
import socket
from collections import Counter

import node_rig as rig
import pytest
from http_rig import problems_of
from node_rig import Node, chunk_id, server_text

from headrace.core import connect
from headrace.pipeline.event import NS, Batch
from headrace.plugins.out_forward import output

FAST = "heartbeat_interval 0.05\n"
ACK = "require_ack_response true\n"


def one(n, **more):
    return Batch.one(1_700_000_000 * NS + 5, {"n": n, **more})


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def figures(running, node):
    return running.stats()["nodes"][f"127.0.0.1:{node.port}"]


async def test_a_chunk_is_one_packed_message_and_no_ack_is_asked_for():
    async with Node() as node, rig.output("heartbeat_type none\n" + server_text(node)) as (running, emit):
        await emit("a.tag", Batch.of([(NS, {"n": 1}), (2 * NS + 7, {"n": 2})]))
        await running.idle()
        await until(lambda: node.messages)
        tag, _entries, option = node.messages[0]
        assert (tag, option) == ("a.tag", {"size": 2, "compressed": "text"})
        assert rig.events(node.messages[0]) == [(NS, {"n": 1}), (2 * NS + 7, {"n": 2})]
        assert figures(running, node)["sent_events"] == 2


async def test_a_node_that_closes_in_the_handshake_may_want_tls():
    async def close(_reader, writer):
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    text = (
        f"<security>\nself_hostname me\nshared_key k\n</security>\n<server>\nhost 127.0.0.1\nport {port}\n</server>\n"
    )
    async with server, rig.output("heartbeat_type none\n" + text) as (running, emit):
        await emit("t", one(1))
        await until(lambda: "handshake (does it want TLS?)" in running.log.getvalue())


async def test_nodes_of_one_name_have_figures_of_their_own():
    async with Node() as first, Node() as second:
        text = "heartbeat_type none\n" + "".join(
            f"<server>\nname localhost\nhost 127.0.0.1\nport {node.port}\n</server>\n" for node in (first, second)
        )
        async with rig.output(text) as (running, _emit):
            assert set(running.stats()["nodes"]) == {
                f"localhost (127.0.0.1:{first.port})",
                f"localhost (127.0.0.1:{second.port})",
            }


async def test_a_packed_batch_goes_through_undecoded():
    packed = Batch.of([(NS, {"n": 1})]).packed()
    odd = b"\x92\xd7\x00" + b"\0" * 8 + b"\x81\xa1x\xc7\x01\x63\xff"  # an extension nobody knows
    async with Node() as node, rig.output("heartbeat_type none\n" + server_text(node)) as (running, emit):
        await emit("t", Batch.from_packed(packed + odd, 2))
        await running.idle()
        await until(lambda: node.messages)
        assert rig.raw_entries(node.messages[0]) == packed + odd


@pytest.mark.parametrize("how", ["gzip", "zstd"])
async def test_what_is_compressed_in_the_buffer_is_not_compressed_again(how, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.codec.compress", None)
    text = f"heartbeat_type none\ncompress {how}\n"
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        await emit("t", one(1, text="x" * 1000))
        await running.idle()
        await until(lambda: node.messages)
        assert node.messages[0][2]["compressed"] == how
        assert node.numbers == [1]
        assert running.runner.section.compress == how


async def test_a_buffer_that_is_text_is_compressed_on_the_way():
    text = "heartbeat_type none\ncompress gzip\n"
    buffer = "flush_mode immediate\ncompress text"
    async with Node() as node, rig.output(text + server_text(node), buffer=buffer) as (running, emit):
        await emit("t", one(1))
        await running.idle()
        await until(lambda: node.messages)
        assert node.messages[0][2]["compressed"] == "gzip"
        assert node.numbers == [1]


async def test_a_compressed_buffer_is_sent_as_text_where_the_wire_is_text():
    buffer = "flush_mode immediate\ncompress gzip"
    async with (
        Node() as node,
        rig.output("heartbeat_type none\n" + server_text(node), buffer=buffer) as (running, emit),
    ):
        await emit("t", one(1))
        await running.idle()
        await until(lambda: node.messages)
        assert node.messages[0][2]["compressed"] == "text"
        assert node.numbers == [1]


async def test_times_as_integers():
    text = "heartbeat_type none\ntime_as_integer true\n"
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        await emit("t", one(1))
        await running.idle()
        await until(lambda: node.messages)
        assert rig.raw_entries(node.messages[0]) == b"\x92\xce\x65\x53\xf1\x00\x81\xa1n\x01"


async def test_without_keepalive_each_chunk_has_a_connection_of_its_own():
    async with Node() as node, rig.output("heartbeat_type none\n" + server_text(node)) as (running, emit):
        for number in range(5):
            await emit("t", one(number))
            await running.idle()
        await until(lambda: node.accepts == 5 and not node.open)
        counters = figures(running, node)
        assert (counters["opened"], counters["reused"]) == (5, 0)


async def test_keepalive_is_one_connection_for_each_lane():
    text = "heartbeat_type none\nkeepalive true\n"
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        for number in range(10):
            await emit("t", one(number))
            await running.idle()
        await until(lambda: len(node.messages) == 10)
        assert node.accepts == 1
        counters = figures(running, node)
        assert (counters["opened"], counters["reused"], counters["stale"]) == (1, 9, 0)
    await until(lambda: not node.open)


@pytest.mark.parametrize("wanted", [False, True])
async def test_send_keepalive_packet_sets_so_keepalive_and_nothing_else_does(wanted, monkeypatch):
    found = []

    async def dial(*args, **options):
        stream = await connect.dial(*args, **options)
        found.append(stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        return stream

    monkeypatch.setattr(output, "dial", dial)
    text = "heartbeat_type none\nkeepalive true\n" + "send_keepalive_packet true\n" * wanted
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        await emit("t", one(1))
        await running.idle()
        assert found == [wanted]


async def test_a_kept_connection_that_the_node_closed_is_noticed_before_it_is_written_to():
    text = "heartbeat_type none\nkeepalive true\n" + ACK
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        node.close_after = 0.0
        for number in range(5):
            await emit("t", one(number))
            await running.idle()
            await until(lambda: not node.open)
            await asyncio.sleep(0.01)
        assert node.numbers == [0, 1, 2, 3, 4]
        assert node.accepts == 5
        counters = figures(running, node)
        assert (counters["stale"], counters["failed"], counters["resent"]) == (4, 0, 0)
        assert running.failures() == 0


async def test_an_unused_connection_is_closed_after_keepalive_timeout():
    text = "heartbeat_type none\nkeepalive true\nkeepalive_timeout 0.05\n"
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        await emit("t", one(1))
        await running.idle()
        await until(lambda: node.accepts == 1 and not node.open)
        assert running.stats()["connections"] == 0
        await emit("t", one(2))
        await running.idle()
        await until(lambda: len(node.messages) == 2)
        assert figures(running, node)["stale"] == 0


async def test_a_chunk_is_delivered_when_it_is_acknowledged():
    async with Node() as node, rig.output("heartbeat_type none\n" + ACK + server_text(node)) as (running, emit):
        node.then = "hold"
        await emit("t", one(1))
        await until(lambda: node.late)
        assert running.runner.stats()["buffered"] == 1
        assert len(chunk_id(node.messages[0])) == 16
        node.release()
        await running.idle()
        assert figures(running, node)["acks"] == 1


async def test_a_lane_does_not_wait_for_acknowledgements_up_to_the_window():
    text = "heartbeat_type none\nkeepalive true\nack_window 4\n" + ACK
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        node.then = "hold"
        for number in range(10):
            await emit("t", one(number))
        await until(lambda: len(node.late) == 4)
        await asyncio.sleep(0.05)
        assert len(node.messages) == 4, "no more than the window"
        assert node.accepts == 1, "all of them on one connection"
        while len(node.messages) < 10:
            node.release()
            await asyncio.sleep(0.001)
        node.release()
        await running.idle()
        assert node.numbers == list(range(10))
        assert running.failures() == 0


@pytest.mark.parametrize("answer", ["close", "reset", "wrong", "garbage"])
async def test_a_connection_that_ends_before_the_ack_sends_the_chunk_again_with_the_same_id(answer):
    text = "heartbeat_type none\nkeepalive true\n" + ACK
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        node.answers = [answer]
        await emit("t", one(1))
        await running.idle()
        first, second = node.messages
        assert first == second
        assert chunk_id(first) == chunk_id(second)
        assert node.accepts == 2


NONSENSE = {
    "a reply that announces a gigabyte": b"\xdb\x40\x00\x00\x00" + b"x" * 100_000,
    "an id that announces a gigabyte": b"\x81\xa3ack\xc6\x40\x00\x00\x00" + b"y" * 100_000,
    "nesting": b"\x91" * 100_000,
    "no msgpack": b"\xc1",
    "a list for an id": b"\x81\xa3ack\x91\x01",
    "another id": b"\x81\xa3ack\xc4\x03abc",
    "nil": b"\xc0",
    "nil for an id": b"\x81\xa3ack\xc0",
}


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("security", ["", "<security>\nself_hostname me\nshared_key secret\n</security>\n"])
async def test_replies_that_make_no_sense_end_the_connection_and_keep_the_chunk(reply, security):
    async with Node() as node:

        async def talk(reader, writer, _number):
            if not security:
                await reader.read(10)
            writer.write(reply)
            await reader.read()

        node.talk = talk
        async with rig.output("heartbeat_type none\n" + ACK + security + server_text(node)) as (running, emit):
            await emit("t", one(1))
            await running.failed(2)
            await until(lambda: not node.open)
            assert running.runner.stats()["buffered"] == 1
            assert running.stats()["unacknowledged"] == 0


async def test_what_the_node_did_not_acknowledge_goes_to_the_next_node_at_once():
    async with Node() as bad, Node() as good:
        bad.then = "close"
        text = "heartbeat_type none\n" + ACK + server_text(bad) + server_text(good)
        async with rig.output(text) as (running, emit):
            for number in range(6):
                await emit("t", one(number))
            await running.idle()
            assert sorted(good.numbers) == list(range(6))
            assert running.failures() == 0, "no retry was needed"
            assert figures(running, good)["resent"] >= 1
            assert set(Counter(bad.numbers).values()) == {2}, "it was asked once more"


async def test_a_node_that_may_have_a_chunk_is_asked_first():
    """A connection that breaks before the acknowledgement: only the same node knows a repetition when it sees one."""
    async with Node() as node, Node() as other:
        text = "heartbeat_type none\nkeepalive true\n" + ACK + server_text(node) + server_text(other)
        async with rig.output(text) as (running, emit):
            for number in range(40):
                node.answers = ["close" if number % 2 else "ack"]
                other.answers = ["reset" if number % 3 else "ack"]
                await emit("t", one(number))
                await running.idle()
            assert not set(node.numbers) & set(other.numbers)
            assert running.failures() == 0


async def test_a_node_that_refuses_connections_is_not_asked_twice():
    async with Node() as gone:
        port = gone.port
    async with Node() as node:
        text = f"heartbeat_type none\n{ACK}<server>\nhost 127.0.0.1\nport {port}\n</server>\n" + server_text(node)
        async with rig.output(text) as (running, emit):
            for number in range(4):
                await emit("t", one(number))
                await running.idle()
            assert node.numbers == [0, 1, 2, 3]
            assert running.stats()["nodes"][f"127.0.0.1:{port}"]["failed"] <= 2
            assert figures(running, node)["resent"] == 0


async def test_a_connection_that_breaks_is_one_failure_and_one_new_connection_however_many_chunks_were_on_it():
    text = "heartbeat_type none\nkeepalive true\nack_window 6\n" + ACK
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        node.answers = ["hold"] * 5 + ["close"]
        for number in range(6):
            await emit("t", one(number))
        await running.idle()
        assert node.accepts == 2
        assert sorted(node.numbers) == sorted([*range(6), *range(6)])
        (first,) = running.plugin._nodes.values()
        assert first.counters.failed == 6
        assert running.failures() == 0 or first.failures == 0


async def test_no_ack_in_time_gives_the_node_up_and_keeps_the_chunk():
    text = FAST + "ack_response_timeout 1\nrecover_wait 0.2\n" + ACK
    async with Node() as node, rig.output(text + server_text(node)) as (running, emit):
        node.answers = ["silent"]
        await emit("t", one(1))
        await running.idle()
        assert node.numbers == [1, 1]
        counters = figures(running, node)
        assert (counters["ack_timeouts"], counters["detached"], counters["acks"]) == (1, 1, 1)
        assert counters["available"]


async def test_the_shared_key_and_a_user():
    security = "<security>\nself_hostname me\nshared_key secret\n</security>\n"
    async with Node(shared_key="secret", users={"bob": "pw"}) as node:
        text = "heartbeat_type none\nkeepalive true\n" + security + server_text(node, "username bob\npassword pw")
        async with rig.output(text) as (running, emit):
            await emit("t", one(1))
            await emit("t", one(2))
            await running.idle()
            await until(lambda: len(node.messages) == 2)
            assert node.accepts == 1
            assert node.refused == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"shared_key": "another"}, "authentication failed: shared_key mismatch"),
        ({"hostname": "me"}, "same hostname between input and output"),
        ({"users": {"bob": "pw"}}, "authentication failed: username/password mismatch"),
    ],
)
async def test_a_handshake_that_fails_says_why_and_no_secret(change, told):
    security = "<security>\nself_hostname me\nshared_key hush\n</security>\n"
    async with Node(**{"shared_key": "hush", **change}) as node:
        text = "heartbeat_type none\n" + security + server_text(node, "username bob\npassword silence")
        async with rig.output(text) as (running, emit):
            await emit("t", one(1))
            await running.failed(1)
            assert told in running.log.getvalue()
            assert "hush" not in running.log.getvalue() + str(running.stats())
            assert "silence" not in running.log.getvalue() + str(running.stats())
            assert node.messages == []


async def test_a_node_that_asks_for_a_key_nobody_configured_is_told_of():
    async with Node(shared_key="secret") as node:
        text = "heartbeat_type none\n" + ACK + server_text(node)
        async with rig.output(text) as (running, emit):
            await emit("t", one(1))
            await running.failed(1)
            assert "asks for a shared key: set <security>" in running.log.getvalue()


async def test_a_node_that_lets_no_connection_be_kept():
    security = "<security>\nself_hostname me\nshared_key secret\n</security>\n"
    async with Node(shared_key="secret", keep=False) as node:
        text = "heartbeat_type none\nkeepalive true\n" + security + server_text(node)
        async with rig.output(text) as (running, emit):
            for number in range(3):
                await emit("t", one(number))
                await running.idle()
            await until(lambda: node.accepts == 3 and not node.open)


async def test_traffic_leaves_a_node_that_swallows_connections():
    """A full backlog: SYNs are dropped, and the connection never comes about."""
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(hole.getsockname())
        fillers.append(filler)
    try:
        async with Node() as node:
            text = f"{FAST}connect_timeout 0.2\n<server>\nhost 127.0.0.1\nport {hole.getsockname()[1]}\n</server>\n"
            async with rig.output(text + server_text(node)) as (running, emit):
                for number in range(20):
                    await emit("t", one(number))
                await running.idle()
                await until(lambda: len(node.messages) == 20)
                lost = running.stats()["nodes"][f"127.0.0.1:{hole.getsockname()[1]}"]
                assert lost["failed"] <= 3, "the breaker keeps the others from trying"
                assert running.failures() == 0
    finally:
        for sock in (*fillers, hole):
            sock.close()


async def test_a_dead_node_alone_is_retried_until_it_is_there():
    async with Node() as gone:
        port = gone.port
    text = f"{FAST}<server>\nhost 127.0.0.1\nport {port}\n</server>\n"
    async with rig.output(text) as (running, emit):
        await emit("t", one(1))
        await running.failed(2)
        async with Node(port=port) as node:
            await running.idle()
            await until(lambda: node.numbers == [1])


async def test_the_standby_node_works_while_the_other_is_down_and_only_then():
    async with Node() as active, Node() as standby:
        text = FAST + server_text(active) + server_text(standby, "standby true")
        async with rig.output(text) as (running, emit):
            for number in range(5):
                await emit("t", one(number))
            await running.idle()
            assert standby.messages == []
            await active.stop()
            await until(lambda: figures(running, active)["failures_in_a_row"] >= 3)
            await emit("t", one(5))
            await running.idle()
            await until(lambda: standby.numbers == [5])
            async with Node(port=active.port) as back:
                await until(lambda: not figures(running, active)["failures_in_a_row"])
                await emit("t", one(6))
                await running.idle()
                await until(lambda: back.numbers == [6])


async def test_heartbeats_by_udp():
    got = []
    loop = asyncio.get_running_loop()

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, address):
            got.append(data)
            self.transport.sendto(b"\0", address)

    async with Node() as node:
        transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", node.port))
        text = FAST + "heartbeat_type udp\nrecover_wait 0.1\nhard_timeout 0.3\n" + server_text(node)
        async with rig.output(text) as (running, emit):
            await until(lambda: len(got) >= 3)
            assert set(got) == {b"\0"}
            assert figures(running, node)["available"]
            transport.close()
            await until(lambda: not figures(running, node)["available"])
            assert "detached forwarding server" in running.log.getvalue()
            transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", node.port))
            await until(lambda: figures(running, node)["available"])
            assert "recovered forwarding server" in running.log.getvalue()
            await emit("t", one(1))
            await running.idle()
        transport.close()


async def test_verify_connection_at_startup():
    async with Node() as node:
        port = node.port
    text = f"verify_connection_at_startup true\n<server>\nhost 127.0.0.1\nport {port}\n</server>\n"
    with pytest.raises(Exception, match="verify_connection_at_startup"):
        async with rig.output(text):
            pass


async def test_names_that_cannot_be_resolved_stop_the_start_unless_told_otherwise():
    text = "<server>\nhost no-such-host.invalid\n</server>\n"
    with pytest.raises(Exception, match="could not be resolved"):
        async with rig.output(text):
            pass
    async with rig.output("ignore_network_errors_at_startup true\n" + text) as (running, emit):
        assert running.stats()["healthy_nodes_count"] == 0
        await emit("t", one(1))
        await running.failed(1)
        assert "no nodes are available" in running.log.getvalue()


async def test_nodes_of_a_file_come_and_go(tmp_path):
    path = tmp_path / "sd.json"
    async with Node() as first, Node() as second:
        path.write_text(f'[{{"host": "127.0.0.1", "port": {first.port}}}]')
        text = f"{FAST}keepalive true\n<service_discovery>\n@type file\npath {path}\n</service_discovery>\n"
        async with rig.output(text) as (running, emit):
            await emit("t", one(1))
            await running.idle()
            await until(lambda: first.numbers == [1])
            path.write_text(f'[{{"host": "127.0.0.1", "port": {second.port}, "weight": 1}}]')
            await until(lambda: f"127.0.0.1:{second.port}" in running.stats()["nodes"])
            await emit("t", one(2))
            await running.idle()
            await until(lambda: second.numbers == [2])
            assert first.numbers == [1]
            assert running.stats()["registered_nodes_count"] == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "needs a node to send to"),
        (
            "<server>\nhost a\n</server>\ndns_round_robin true\nheartbeat_type udp",
            "does not go with heartbeat_type udp",
        ),
        ("<server>\nhost a\n</server>\nack_response_timeout 0", "must be at least 1"),
        ("<server>\nhost a\n</server>\ntls_cert_thumbprint abc", "Windows"),
        ("<server>\nhost a\nport 0\n</server>", "out of range"),
        ("<server>\nhost a\n</server>\n<buffer time>\ntimekey 1d\n</buffer>", "tag among the chunk keys"),
        ("<server>\nhost a\n</server>\ntransport tls\ntls_cert_path /no/such", "does not exist"),
        ("<server>\nhost a\n</server>\ncompress gzip\n<buffer tag>\ncompress zstd\n</buffer>", "must be the same"),
        ("host a", "use a <server> section"),
        ("<service_discovery>\n@type filo\n</service_discovery>", 'did you mean "file"'),
        ("send_keepalive_packet true\n<server>\nhost a\n</server>", "send_keepalive_packet needs keepalive true"),
    ],
)
def test_what_check_finds(text, told):
    errors, _warnings = problems_of("output", f"<match **>\n@type forward\n{text}\n</match>")
    assert any(told in error for error in errors), errors


def test_what_check_warns_of():
    text = "heartbeat_type tcp\nkeepalive_timeout 5\nread_length 1k\n<server>\nhost a\nshared_key x\n</server>"
    errors, warnings = problems_of("output", f"<match **>\n@type forward\n{text}\n</match>")
    assert errors == []
    assert len(warnings) == 4
