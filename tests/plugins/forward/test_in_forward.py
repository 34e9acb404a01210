"""The forward source: messages, acknowledgements, refusals, the handshake, and what happens when buffers are full."""

import asyncio
import gzip
import json
import socket
import ssl

import pytest
import trustme
import zstandard
from forward_rig import client, conf, forward, problems_of
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.event import EventTime, pack_event, pack_value
from headrace.plugins.forward import handshake
from headrace.plugins.forward.entries import Refused
from headrace.plugins.forward.messages import chunk_option, encode_forward, encode_packed
from headrace.plugins.forward.stream import Decoder
from headrace.plugins.in_forward.intake import Terms, bring
from headrace.testing.pipelines import Script

T = 1_700_000_000_123_456_789
IDS = [bytes([number]) * 16 for number in range(50)]


def stream(*numbers):
    return b"".join(pack_event(T, {"n": number}) for number in numbers)


def packed(*numbers, tag="t", chunk=None):
    return encode_packed(tag, stream(*numbers), len(numbers), chunk_id=chunk)


async def test_every_form_arrives_and_is_acknowledged():
    events = stream(1, 2)
    messages = {
        "a": pack_value(["t", EventTime(T), {"n": 1}, {"chunk": "a"}]),
        "b": encode_forward("t", [(EventTime(T), {"n": 2}), (1_700_000_000, {"n": 3})], {"chunk": "b"}),
        "c": pack_value(["t", stream(4), {"chunk": "c", "size": 1}]),
        "d": pack_value(["t", gzip.compress(events) + gzip.compress(stream(7)), {"chunk": "d", "size": 3, "compressed": "gzip"}]),
        "e": pack_value(["t", zstandard.compress(events), {"chunk": "e", "compressed": "zstd"}]),
        "f": pack_value(["t", events, {"chunk": "f", "size": 2, "compressed": "text"}]),
        "g": pack_value(["t", b"", {"chunk": "g"}]),
    }  # fmt: skip
    async with forward() as rig, client(rig.port) as peer:
        for name, message in messages.items():
            await peer.send(message)
            assert await peer.ack() == name
        assert [record["n"] for record in rig.records] == [1, 2, 3, 4, 1, 2, 7, 1, 2, 1, 2]
        assert {tag for tag, _, _ in rig.direct.events} == {"t"}
        assert [time for _, time, _ in rig.direct.events[:3]] == [T, T, 1_700_000_000 * 10**9]
        assert rig.stats["acknowledged"] == 7
        assert rig.stats["events"] == 11


async def test_byte_by_byte_with_heartbeats_between():
    data = b"\xc0" + packed(1, chunk=IDS[0]) + b"\xc0" + pack_value(["t", 1_700_000_000, {"n": 2}])
    async with forward() as rig, client(rig.port) as peer:
        for byte in data:
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await peer.ack() == chunk_option(IDS[0])
        await rig.until(lambda: len(rig.records) == 2)


async def test_json_is_answered_in_json():
    async with forward() as rig, client(rig.port) as peer:
        await peer.send(b'["t", 1700000000, {"n": 1}, {"chunk": "x"}]\n')
        assert await peer.text() == {"ack": "x"}
        await peer.send(b'["t", [[1700000000.5, {"n": 2}], [0, {"n": 3}]]]["t", 1, {"n": 4}, {"chunk": "y"}]')
        assert await peer.text() == {"ack": "y"}
        assert [record["n"] for record in rig.records] == [1, 2, 3, 4]
        assert rig.direct.events[1][1] == 1_700_000_000_500_000_000
        assert rig.direct.events[2][1] > T


async def test_nanoseconds_pass_unchanged(tmp_path):
    """F35."""
    async with (
        forward(match="@type script\n<buffer>\nflush_mode immediate\n</buffer>") as rig,
        client(rig.port) as peer,
    ):
        await peer.send(bytes.fromhex("93a174d7006553f100075bcd1581a16101"), pack_value(["t", 1_700_000_000, {"a": 2}]))
        script = rig.of(Script)
        await rig.until(lambda: len(script.got) == 2)
        assert b"".join(script.raw)[:14] == bytes.fromhex("92d7006553f100075bcd1581a161")
        assert [time for chunk in script.chunks for time, _ in chunk] == [T, 1_700_000_000_000_000_000]


@pytest.mark.parametrize(
    "bad",
    [
        b"\x93\xa3\x66\x93\xa7\x01\x81\xa1n\x07",  # the tag is not UTF-8 (F24)
        b"\x93\xa3\x66\x93\xa7\xa0\x80",
        pack_value(["t", 5]),
        pack_value({"n": 7}),
        pack_value(["t", b"\xc1\xc1"]),
        pack_value(["t", b"\x92\x01", {"size": 1}]),
        pack_value(["t", b"no gzip", {"compressed": "gzip"}]),
        pack_value(["t", stream(7), {"compressed": "lz4"}]),
        pack_value(["t", 1, "no record"]),
        pack_value(["t", stream(7), {"fluent_signal": 1}]),
        pack_value(["t", [["x", {}], [1, None]], {"chunk": "never"}]),
    ],
)
async def test_a_bad_message_is_left_out_and_the_connection_goes_on(bad):
    async with forward() as rig, client(rig.port) as peer:
        await peer.send(bad, packed(1, chunk=IDS[0]))
        assert await peer.ack() == chunk_option(IDS[0])
        assert rig.records == [{"n": 1}]
        assert rig.stats["refused"] == 1


async def test_what_is_no_message_ends_the_connection_and_no_other():
    async with forward() as rig, client(rig.port) as good, client(rig.port) as bad:
        await bad.send(packed(1), b"\xc1")
        assert await bad.at_end()
        await good.send(packed(2, chunk=IDS[0]))
        await good.ack()
        assert [record["n"] for record in rig.records] == [1, 2]


async def test_tag_and_prefix():
    async with forward("tag all\nadd_tag_prefix in") as rig, client(rig.port) as peer:
        await peer.send(packed(1, tag="x", chunk=IDS[0]))
        await peer.ack()
        assert rig.direct.events[0][0] == "in.all"


async def test_source_fields_are_added_to_packed_events():
    keys = "source_address_key from\nsource_hostname_key host"
    async with forward(keys) as rig, client(rig.port) as peer:
        await peer.send(packed(1, 2, chunk=IDS[0]))
        await peer.ack()
        assert [record["from"] for record in rig.records] == ["127.0.0.1"] * 2
        assert rig.records[0]["host"]
        assert rig.direct.events[0][1] == T


async def test_chunk_size_limit_drops_without_an_answer():
    async with forward("chunk_size_limit 200\nchunk_size_warn_limit 100") as rig, client(rig.port) as peer:
        await peer.send(packed(*range(100), chunk=IDS[0]), packed(1, chunk=IDS[1]))
        assert await peer.ack() == chunk_option(IDS[1])
        assert len(rig.records) == 1
        assert rig.stats["refused"] == 1


async def test_skip_invalid_event_looks_at_each():
    data = stream(1) + pack_value(["x", {}]) + stream(2)
    async with forward("skip_invalid_event true") as rig, client(rig.port) as peer:
        await peer.send(encode_packed("t", data, 3, chunk_id=IDS[0]))
        await peer.ack()
        await peer.send(pack_value(["t", "x", {}]), pack_value(["t", [["x", {}]], {"chunk": "all bad"}]))
        assert await peer.ack() == "all bad"
        assert rig.stats["invalid_events"] == 3
        assert rig.records == [{"n": 1}, {"n": 2}]


async def test_metadata_of_fluent_bit_is_left_out():
    data = pack_value([[EventTime(T), {"meta": 1}], {"n": 1}]) * 2
    async with forward() as rig, client(rig.port) as peer:
        await peer.send(pack_value(["t", data, {"size": 2, "fluent_signal": 0, "chunk": "c"}]))
        await peer.ack()
        assert rig.direct.events == [("t", T, {"n": 1})] * 2


async def test_deny_keepalive_closes_after_each_message():
    async with forward("deny_keepalive true") as rig:
        async with client(rig.port) as peer:
            await peer.send(packed(1, chunk=IDS[0]), packed(2))
            assert await peer.ack() == chunk_option(IDS[0])
            assert await peer.at_end()
        async with client(rig.port) as peer:
            await peer.send(packed(3))
            assert await peer.at_end()
        assert [record["n"] for record in rig.records] == [1, 3]


async def test_udp_heartbeats():
    async with forward() as rig:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect(("127.0.0.1", rig.port))
            await loop.sock_sendall(sock, b"\0")
            async with asyncio.timeout(10):
                assert await loop.sock_recv(sock, 100) == b"\0"
        assert rig.stats["heartbeats"] == 1


SECURITY = """
<security>
  self_hostname server
  shared_key k
  user_auth {user_auth}
  allow_anonymous_source {anonymous}
  <user>
    username alice
    password secret
  </user>
  <user>
    username bob
    password other
  </user>
  <client>
    {client}
    {key}
    users {users}
  </client>
</security>
"""


def secured(*, user_auth="false", anonymous="true", where="network 10.0.0.0/8", key="", users=""):
    return SECURITY.format(user_auth=user_auth, anonymous=anonymous, client=where, key=key, users=users)


async def shake(peer, *, key="k", user="", password=""):
    greeting = handshake.check_helo(await peer.value())
    salt = handshake.new_salt()
    said = handshake.ping(greeting, salt, hostname="client", shared_key=key, username=user, password=password)
    await peer.send(pack_value(said))
    return handshake.check_pong(await peer.value(), greeting, salt, hostname="client", shared_key=key)


@pytest.mark.parametrize(
    ("terms", "proof"),
    [
        ({}, {}),
        ({"user_auth": "true"}, {"user": "alice", "password": "secret"}),
        ({"where": "host 127.0.0.1", "key": "shared_key own", "anonymous": "false"}, {"key": "own"}),
        ({"user_auth": "true", "where": "network 127.0.0.0/8", "users": "bob", "anonymous": "false"}, {"user": "bob", "password": "other"}),
    ],
)  # fmt: skip
async def test_a_client_that_proves_itself(terms, proof):
    async with forward(secured(**terms)) as rig, client(rig.port) as peer:
        assert await shake(peer, **proof) == "server"
        await peer.send(packed(1, chunk=IDS[0]))
        await peer.ack()
        assert rig.records == [{"n": 1}]


@pytest.mark.parametrize(
    ("terms", "proof", "text"),
    [
        ({}, {"key": "wrong"}, "shared_key mismatch"),
        ({"anonymous": "false"}, {}, "anonymous source host '127.0.0.1' denied"),
        ({"user_auth": "true"}, {"user": "alice", "password": "wrong"}, "username/password mismatch"),
        ({"user_auth": "true"}, {"user": "eve", "password": "secret"}, "username/password mismatch"),
        ({"user_auth": "true", "where": "host 127.0.0.1", "users": "bob"}, {"user": "alice", "password": "secret"}, "username/password"),
        ({"where": "host 127.0.0.1", "key": "shared_key own"}, {}, "shared_key mismatch"),
    ],
)  # fmt: skip
async def test_a_client_that_does_not(terms, proof, text, caplog):
    async with forward(secured(**terms)) as rig, client(rig.port) as peer:
        with pytest.raises(handshake.HandshakeError, match=text):
            await shake(peer, **proof)
        assert await peer.at_end()
        assert rig.stats["denied"] == 1
        assert rig.records == []
    for secret in ("secret", "other", "wrong", "own"):
        assert secret not in caplog.text.replace("username/password", "")


@pytest.mark.parametrize(
    "said", [packed(1), b"\x01", pack_value(["PING", "a"]), b'["PING"]', b"\xdb\x00\x01\x00\x00" + bytes(70_000)]
)
async def test_messages_without_a_handshake_are_not_taken(said):
    async with forward(secured()) as rig, client(rig.port) as peer:
        await peer.value()
        await peer.send(said, packed(2))
        assert await peer.at_end() or True
        await rig.until(lambda: not rig.stats["connections"])
        assert rig.records == []


def certificates(tmp_path):
    authority = trustme.CA()
    mine = authority.issue_cert("localhost")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    for number, blob in enumerate(mine.cert_chain_pems):
        blob.write_to_path(tmp_path / "cert.pem", append=bool(number))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return authority


async def test_tls_with_a_handshake(tmp_path):
    authority = certificates(tmp_path)
    transport = f"<transport tls>\ncert_path {tmp_path}/cert.pem\nprivate_key_path {tmp_path}/key.pem\n</transport>\n"
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with (
        forward(transport + secured()) as rig,
        client(rig.port, ssl=context, server_hostname="localhost") as peer,
    ):
        await shake(peer)
        await peer.send(packed(1, chunk=IDS[0]))
        await peer.ack()
        assert rig.records == [{"n": 1}]


async def test_a_client_without_tls_where_tls_is_spoken_is_told_of_and_a_monitor_is_not(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("headrace.plugins.in_forward.server.TLS_TIMEOUT", 0.3)
    certificates(tmp_path)
    transport = f"<transport tls>\ncert_path {tmp_path}/cert.pem\nprivate_key_path {tmp_path}/key.pem\n</transport>\n"
    async with forward(transport) as rig:
        async with client(rig.port):
            pass
        async with client(rig.port) as peer:
            await peer.send(packed(1))
            assert await peer.reader.read(1) == b""
        async with client(rig.port) as peer:  # waits for a HELO
            assert await peer.reader.read(1) == b""
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 2
    assert "TLS handshake with 127.0.0.1" in warned[0]
    assert "timed out" in warned[1]


STALLED = """@type script
@id out
<buffer>
  @type {kind}
  chunk_limit_size 1m
  total_limit_size 1m
  flush_mode immediate
  flush_thread_count 1
  overflow_action {action}
</buffer>"""


def large(number, chunk=None):
    return encode_packed("t", pack_event(T, {"n": number, "x": "y" * 300_000}), 1, chunk_id=chunk)


async def test_no_ack_for_what_found_no_room_and_a_resend_is_acknowledged_later():
    """F40, F20."""
    gate = asyncio.Event()
    async with forward(match=STALLED.format(kind="memory", action="throw_exception")) as rig:
        script = rig.of(Script)
        script.answers = [gate.wait()]
        acked = set()
        for number in range(10):
            async with client(rig.port) as peer:
                await peer.send(large(number, IDS[number]))
                try:
                    acked.add(await peer.ack())
                except (EOFError, ConnectionError):
                    continue
        assert 1 <= len(acked) < 10
        assert rig.stats["unacknowledged"] == rig.stats["overflows"] == 10 - len(acked)
        assert rig.stats["dropped"] == 0
        gate.set()
        for number in range(10):
            while chunk_option(IDS[number]) not in acked:
                async with client(rig.port) as peer:
                    await peer.send(large(number, IDS[number]))
                    try:
                        acked.add(await peer.ack())
                    except (EOFError, ConnectionError):
                        await asyncio.sleep(0.01)
        await rig.until(lambda: len(script.got) == 10)
        assert sorted(record["n"] for record in script.got) == list(range(10))


async def test_who_wants_no_ack_is_held_back_and_nothing_is_lost():
    gate = asyncio.Event()
    async with forward(match=STALLED.format(kind="memory", action="throw_exception")) as rig, client(rig.port) as peer:
        script = rig.of(Script)
        script.answers = [gate.wait()]
        sending = asyncio.ensure_future(peer.send(*[large(number) for number in range(20)]))
        await rig.until(lambda: rig.stats["held"])
        async with client(rig.port) as other:  # its neighbours are served
            await other.send(pack_value(["t", b"", {"chunk": "ping"}]))
            assert await other.ack() == "ping"
        gate.set()
        await sending
        await rig.until(lambda: len(script.got) == 20)
        assert [record["n"] for record in script.got] == list(range(20))
        assert rig.stats["dropped"] == 0


async def test_a_blocked_sender_gets_its_ack_when_there_is_room():
    gate = asyncio.Event()
    async with forward(match=STALLED.format(kind="memory", action="block")) as rig, client(rig.port) as peer:
        script = rig.of(Script)
        script.answers = [gate.wait()]
        await peer.send(*[large(number, IDS[number]) for number in range(6)])
        first = [await peer.ack() for _ in range(3)]
        gate.set()
        assert first + [await peer.ack() for _ in range(3)] == [chunk_option(IDS[number]) for number in range(6)]
        await rig.until(lambda: len(script.got) == 6)


@pytest.mark.parametrize("kind", ["memory", "file\npath {path}"])
async def test_a_chunk_sent_again_is_acknowledged_and_stored_once(kind, tmp_path):
    match = STALLED.format(kind=kind.format(path=tmp_path / "buffer"), action="throw_exception")
    async with forward(match=match) as rig:
        script = rig.of(Script)
        for _ in range(3):
            async with client(rig.port) as peer:
                await peer.send(packed(1, chunk=IDS[1]), packed(2, chunk=IDS[2]), packed(1, tag="other", chunk=IDS[1]))
                for _ in range(3):
                    await peer.ack()
        await rig.until(lambda: len(script.got) >= 3)
        await asyncio.sleep(0.05)
        assert sorted(record["n"] for record in script.got) == [1, 1, 2]


async def test_ids_survive_a_restart(tmp_path):
    match = STALLED.format(kind=f"file\npath {tmp_path}/buffer", action="throw_exception")
    got = []
    for _ in range(3):
        async with forward(match=match) as rig, client(rig.port) as peer:
            await peer.send(packed(1, chunk=IDS[1]), packed(2, chunk=IDS[2]))
            assert [await peer.ack(), await peer.ack()] == [chunk_option(IDS[1]), chunk_option(IDS[2])]
            script = rig.of(Script)
            await rig.until(lambda: rig.pipeline.runners[0].stats()["buffered"] == 0)
            got += script.got
    assert sorted(record["n"] for record in got) == [1, 2]


async def test_short_ids_and_deduplicate_false_store_repetitions():
    match = "@type script\n<buffer>\nflush_mode immediate\n</buffer>"
    async with forward(match=match) as rig, client(rig.port) as peer:
        for _ in range(2):
            await peer.send(pack_value(["t", stream(1), {"chunk": "counter-1"}]))
            await peer.ack()
        await rig.until(lambda: len(rig.of(Script).got) == 2)
    async with forward("deduplicate false", match=match) as rig, client(rig.port) as peer:
        for _ in range(2):
            await peer.send(packed(1, chunk=IDS[0]))
            await peer.ack()
        await rig.until(lambda: len(rig.of(Script).got) == 2)


COPY = """@type copy
<store>
  @type script
  @id first
  <buffer>
    @type {kind}
    {path}1
    flush_mode immediate
  </buffer>
</store>
<store>
  @type script
  @id second
  <buffer>
    @type {kind}
    {path}2
    chunk_limit_size 1m
    total_limit_size 1m
    flush_mode immediate
    flush_thread_count 1
    overflow_action throw_exception
  </buffer>
</store>"""


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_partial_acceptance_and_a_resend_give_each_output_exactly_one(kind, tmp_path):
    path = f"path {tmp_path}/" if kind == "file" else "#"
    async with forward(match=COPY.format(kind=kind, path=path)) as rig:
        gate = asyncio.Event()
        first, second = rig.of(Script), rig.of(Script, 1)
        second.answers = [gate.wait()]
        acked = set()
        while len(acked) < 8:
            for number in range(8):
                if number in acked:
                    continue
                async with client(rig.port) as peer:
                    await peer.send(large(number, IDS[number]))
                    try:
                        await peer.ack()
                        acked.add(number)
                    except (EOFError, ConnectionError):
                        await asyncio.sleep(0.01)
            assert rig.stats["unacknowledged"]
            gate.set()
        await rig.until(lambda: len(first.got) == len(second.got) == 8)
        for output in (first, second):
            assert sorted(record["n"] for record in output.got) == list(range(8))


async def test_at_the_end_acked_is_stored_and_the_rest_is_not_acked(tmp_path):
    """F25."""
    match = STALLED.format(
        kind=f"file\npath {tmp_path}/buffer\nflush_at_shutdown true", action="throw_exception"
    ).replace("1m", "64m")
    async with forward(match=match, stop=False) as rig:
        acked = []

        async def sender(base):
            number = base
            async with client(rig.port) as peer:
                try:
                    while True:
                        await peer.send(encode_packed("t", stream(number), 1, chunk_id=number.to_bytes(16, "big")))
                        await peer.ack()
                        acked.append(number)
                        number += 1
                except (EOFError, ConnectionError):
                    return

        senders = [asyncio.ensure_future(sender(base)) for base in (0, 1 << 20, 2 << 20)]
        await rig.until(lambda: len(acked) > 50)
        script = rig.of(Script)
        await rig.pipeline.stop(5)
        await asyncio.gather(*senders)
        got = {record["n"] for record in script.got}
        assert set(acked) <= got


async def test_what_a_client_without_acks_has_under_way_is_read_at_the_end():
    async with forward(stop=False) as rig, client(rig.port) as peer:
        await peer.send(packed(1))
        await rig.until(lambda: rig.records)
        await peer.send(*[packed(number) for number in range(2, 100)])
        await rig.pipeline.stop(5)
        assert len(rig.records) == 99
        assert await peer.at_end()


async def test_an_fsync_serves_all_that_wait(tmp_path):
    match = f"@type script\n<buffer>\n@type file\npath {tmp_path}/buffer\nsync fsync\n</buffer>"
    async with forward(match=match) as rig, client(rig.port) as peer:
        await peer.send(*[packed(number, chunk=IDS[number]) for number in range(40)])
        assert [await peer.ack() for _ in range(40)] == [chunk_option(IDS[number]) for number in range(40)]
        assert rig.pipeline.runners[0].stats()["received"] == 40


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("tag", "'tag' parameter must not be empty"),
        ('add_tag_prefix ""', "'add_tag_prefix' parameter must not be empty"),
        ("source_hostname_key h\nresolve_hostname false", "resolve_hostname must be true"),
        ("send_keepalive_packet true\ndeny_keepalive true", "cannot be set to true"),
        ("<security>\nshared_key k\n</security>", "self_hostname"),
        ("<security>\nself_hostname s\nshared_key k\nuser_auth true\n</security>", "<user> sections required"),
        ("<security>\nself_hostname s\nshared_key k\nallow_anonymous_source false\n</security>", "<client> sections required"),
        (secured(where="host a\nnetwork 10.0.0.0/8"), "both of 'host' and 'network'"),
        (secured(where=""), "Either of 'host' and 'network'"),
        (secured(where="network 10.0.0"), "address format is invalid"),
        (secured(where="host no.such.host.invalid"), "cannot be resolved"),
        (secured(users="mallory"), "has no <user> section"),
        ("port 70000", "out of range"),
        ("chunk_limit_size 5", "chunk_limit_size"),
    ],
)  # fmt: skip
def test_configurations_that_cannot_work(parameters, text):
    errors, _ = problems_of(conf(parameters))
    assert any(text in error for error in errors), errors


def test_old_parameters_are_taken_with_a_notice():
    errors, warnings = problems_of(conf("linger_timeout 5\nblocking_timeout 1"))
    assert errors == []
    assert len(warnings) == 2


def test_secrets_do_not_show():
    assert "secret" not in json.dumps(problems_of(conf(secured())))


MEETING = """@type copy
<store>
  @type relabel
  @label @ONE
</store>
<store>
  @type relabel
  @label @TWO
</store>
</match>
<label @ONE>
<match **>
  @type relabel
  @label @END
</match>
</label>
<label @TWO>
<match **>
  @type relabel
  @label @END
</match>
</label>
<label @END>
<match **>
  @type script
  <buffer>
    flush_mode immediate
  </buffer>
</match>
</label>
<match never>
@type null"""


async def test_branches_that_meet_again_do_not_take_each_other_for_repetitions():
    async with forward(match=MEETING) as rig, client(rig.port) as peer:
        for _ in range(3):
            await peer.send(packed(1, chunk=IDS[0]))
            await peer.ack()
        await rig.until(lambda: len(rig.of(Script).got) >= 2)
        await asyncio.sleep(0.05)
        assert rig.of(Script).got == [{"n": 1}] * 2


REWRITE = """@type rewrite_tag_filter
<rule>
  key kind
  pattern ^(.*)$
  tag kind.$1
</rule>"""
KINDS = "<match kind.**>\n@type script\n<buffer tag>\nflush_mode immediate\nflush_thread_count 2\n</buffer>\n</match>"


async def test_parts_of_a_batch_under_other_tags_are_stored_once_too():
    """And the answer waits for all of them with `ack_mode delivery`."""
    events = b"".join(pack_event(T, {"n": number, "kind": "ab"[number % 2]}) for number in range(6))
    async with forward("ack_mode delivery", match=REWRITE, before=KINDS) as rig:
        script = rig.of(Script)
        gate = asyncio.Event()
        script.answers = [gate.wait()]
        async with client(rig.port) as peer:
            await peer.send(encode_packed("t", events, 6, chunk_id=IDS[0]))
            answer = asyncio.ensure_future(peer.ack())
            await rig.until(lambda: len(script.tries) == 2)
            await asyncio.sleep(0.05)
            assert not answer.done()
            gate.set()
            await answer
            for _ in range(2):
                await peer.send(encode_packed("t", events, 6, chunk_id=IDS[0]))
                await peer.ack()
        assert sorted(record["n"] for record in script.got) == list(range(6))


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["chunk", "size", "compressed", "fluent_signal", "x"])


@given(
    st.lists(st.tuples(ODD, st.dictionaries(NAMES, ODD, max_size=3), st.sampled_from("pfs")), max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_no_message_is_unexpected(messages, looks, reads):
    """Whatever it is made of, it is taken or refused."""
    decoder = Decoder()
    terms = Terms(lambda: T, looks=looks, reads=lambda _tag: reads)
    for body, options, form in messages:
        entries = {"p": pack_value(body), "f": [[EventTime(T), body], body], "s": body}[form]
        data = pack_value(["t", entries, body, options] if form == "s" else ["t", entries, options])
        for message in decoder.feed(data):
            try:
                brought = bring(message, terms, None)
            except (Refused, ValueError):
                continue
            events = brought.batch.events()
            assert len(events) == brought.batch.count
            assert all(type(record) is dict and type(time) is int for time, record in events)
    assert decoder.error is None


ROUND = """@type roundrobin
<store>
  @type script
  <buffer>
    flush_mode immediate
  </buffer>
</store>
<store>
  @type script
  <buffer>
    flush_mode immediate
  </buffer>
</store>"""


async def test_a_chunk_sent_again_through_roundrobin_finds_the_store_that_has_it():
    async with forward(match=ROUND) as rig, client(rig.port) as peer:
        for _ in range(3):
            for number in range(20):
                await peer.send(packed(number, chunk=IDS[number]))
                await peer.ack()
        first, second = rig.of(Script), rig.of(Script, 1)
        await rig.until(lambda: len(first.got) + len(second.got) >= 20)
        await asyncio.sleep(0.05)
        assert sorted(record["n"] for record in first.got + second.got) == list(range(20))
        assert first.got
        assert second.got
