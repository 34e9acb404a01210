"""The kafka2 output, against a scripted broker."""

import asyncio
import json
import ssl
import zlib

import pytest
import trustme
from eco_rig import TIME, output
from http_rig import problems_of
from kafka_broker import NOT_LEADER, TOO_LARGE, Broker

from headrace.plugins.out_kafka2 import parameters
from headrace.plugins.out_kafka2.messages import partition_of
from headrace.testing.contracts import RECORDS, check_output

BUFFER = "<buffer {keys}>\nflush_mode interval\nretry_wait 0.01\nretry_randomize false\n{extra}\n</buffer>"


def conf(broker, more="", keys="topic", extra=""):
    return f"@type kafka2\nbrokers 127.0.0.1:{broker.port}\nack_timeout 2\n{more}\n" + BUFFER.format(
        keys=keys, extra=extra
    )


async def sent(broker, more, *records, keys="topic", extra="", tag="app"):
    async with broker, output(conf(broker, more, keys, extra)) as running:
        await running.emit(tag, *records)
        await running.idle()
        running.stats = running.plugin.stats()
        running.counted = running.figures()
    return running


async def test_topics_of_records_and_the_default():
    broker = Broker({"a": 1, "b": 1})
    running = await sent(broker, "default_topic b", {"topic": "a", "n": 1}, {"n": 2}, {"topic": "a", "n": 3})
    found = sorted((topic, json.loads(record.value)["n"]) for topic, _, record in broker.messages)
    assert found == [("a", 1), ("a", 3), ("b", 2)]
    assert running.counted["delivered"] == 3
    assert running.stats["messages"] == 3
    assert any(client.startswith("fluentd") for client in broker.clients)


async def test_the_tag_or_a_placeholder_as_topic():
    broker = Broker({"app": 1})
    await sent(broker, "exclude_topic_key true", {"n": 1}, keys="topic,tag")
    assert [record.value for _, _, record in broker.messages] == [b'{"n":1}']
    broker = Broker({"logs-app": 1})
    await sent(broker, "topic logs-${tag}", {"n": 1}, keys="tag")
    assert len(broker.messages) == 1


async def test_no_topic_at_all_gives_the_chunk_up():
    running = await sent(Broker({}), "", {"n": 1})
    assert running.counted["dropped"]["backed_up"] == 1


async def test_keys_partitions_headers_times():
    more = """
        default_topic t
        use_event_time true
        exclude_partition true
        exclude_partition_key true
        exclude_message_key true
        exclude_fields $.secret.x, gone
        headers {"fixed":"f"}
        headers_from_record {"code":"$.http.code","none":"$.no"}
    """
    broker = Broker({"t": 4})
    records = [
        {"partition": 2, "n": 1, "http": {"code": 200}, "secret": {"x": 1, "y": 2}, "gone": 1},
        {"partition_key": "user", "message_key": "k", "n": 2},
        {"message_key": "k", "n": 3},
    ]
    await sent(broker, more, *records)
    found = {json.loads(record.value)["n"]: (partition, record) for _, partition, record in broker.messages}
    partition, record = found[1]
    assert partition == 2
    assert record.key is None
    assert list(record.headers) == [("fixed", b"f"), ("code", b"200")]
    assert json.loads(record.value) == {"n": 1, "http": {"code": 200}, "secret": {"y": 2}}
    assert record.timestamp == TIME // 1_000_000
    assert found[2][0] == zlib.crc32(b"user") % 4
    assert found[2][1].key == b"k"
    assert found[3][0] == zlib.crc32(b"k") % 4


def test_murmur2_is_that_of_java():
    assert partition_of(b"21", 1 << 31, "murmur2") == -973932308 & 0x7FFFFFFF


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compression(codec):
    broker = Broker({"t": 1})
    await sent(broker, f"default_topic t\ncompression_codec {codec}", *[{"n": n, "x": "y" * 50} for n in range(50)])
    assert [json.loads(record.value)["n"] for _, _, record in broker.messages] == list(range(50))


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("@type ltsv", b"a:1"),
        ("@type single_value\nmessage_key a", b"1\n"),
        ("@type json\nadd_newline false", b'{"a":1}'),
    ],
)
async def test_formats(section, value):
    broker = Broker({"t": 1})
    await sent(broker, f"default_topic t\n<format>\n{section}\n</format>", {"a": 1})
    assert [record.value for _, _, record in broker.messages] == [value]


async def test_one_field_alone():
    broker = Broker({"t": 1})
    await sent(broker, "default_topic t\nrecord_key $.in", {"in": {"a": 1}}, {"in": "text"}, {"x": 1})
    assert [record.value for _, _, record in broker.messages] == [b'{"a":1}', b'"text"', b"null"]


async def test_what_cannot_be_a_message_goes_to_the_error_label():
    broker = Broker({"t": 1})
    records = [{"n": 1}, {"partition": "x"}, {"partition": 7}, {"big": "x" * 200}, {"n": 2}]
    running = await sent(broker, "default_topic t\nmax_send_limit_bytes 100", *records)
    assert len(broker.messages) == 2
    assert running.errors.records == records[1:4]
    assert running.counted["delivered"] == 5


async def test_a_message_that_the_broker_never_takes_stops_nobody():
    broker = Broker({"t": 2}, fate=lambda topic, partition, records: TOO_LARGE if partition else 0)
    running = await sent(broker, "default_topic t", {"partition": 0, "n": 1}, {"partition": 1, "n": 2})
    assert len(broker.messages) == 1
    assert [record["n"] for record in running.errors.records] == [2]
    assert running.counted["retry_count"] == 0


async def test_only_what_was_not_acknowledged_is_sent_again():
    left = [1]

    def fate(topic, partition, records):
        if partition == 1 and left:
            left.clear()
            return 87  # INVALID_RECORD: the client does not try that again itself
        return 0

    broker = Broker({"t": 2}, fate=fate)
    running = await sent(broker, "default_topic t", {"partition": 0, "n": 1}, {"partition": 1, "n": 2})
    counts = [sum(found == partition for _, found, _ in broker.produced) for partition in (0, 1)]
    assert counts == [1, 2]
    assert running.counted["delivered"] == 2
    assert running.counted["retry_count"] == 1


async def test_a_connection_that_is_cut_and_a_leader_that_moves():
    fates = [None, NOT_LEADER]
    broker = Broker({"t": 1}, fate=lambda *_: fates.pop(0) if fates else 0)
    running = await sent(broker, "default_topic t", {"n": 1})
    assert len(broker.messages) == 1
    assert running.counted["delivered"] == 1


async def test_discarding_what_fails():
    broker = Broker({"t": 1}, fate=lambda *_: 87)
    running = await sent(broker, "default_topic t\ndiscard_kafka_delivery_failed true", {"n": 1})
    assert running.counted["delivered"] == 1
    assert "1 messages are dropped" in running.log.getvalue()


async def test_unknown_topics():
    broker = Broker({"known": 1})
    more = "default_topic known\nuse_default_for_unknown_topic true\nack_timeout 0.3"
    running = await sent(broker, more, {"topic": "other", "n": 1})
    assert [topic for topic, _, _ in broker.messages] == ["known"]
    assert "topic other is not known" in running.log.getvalue()


async def test_brokers_that_are_away_at_first():
    broker = Broker({"t": 1})
    async with broker:
        pass
    text = conf(broker, "default_topic t", extra="retry_max_interval 0.1\nretry_forever true")
    async with output(text) as running:
        await running.emit("t", {"n": 1})
        running.flush()
        await running.until(lambda: running.figures()["retry_count"])
        async with broker:
            await running.idle()
            await running.plugin.stop()
    assert len(broker.messages) == 1


@pytest.mark.parametrize(("share", "producers"), [("true", 1), ("false", 3)])
async def test_a_producer_for_each_lane(share, producers):
    broker = Broker({"t": 1})
    extra = "flush_thread_count 3\nchunk_limit_records 1"
    running = await sent(
        broker, f"default_topic t\nshare_producer {share}", *[{"n": n} for n in range(30)], extra=extra
    )
    assert running.stats["producers"] == producers
    assert len(broker.messages) == 30


async def test_tls_with_a_client_certificate(tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    mine = authority.issue_cert("client.example")
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(str(files["ca"]))
    mine.cert_chain_pems[0].write_to_path(str(files["cert"]))
    mine.private_key_pem.write_to_path(str(files["key"]))
    more = f"default_topic t\nssl_ca_cert {files['ca']}\nssl_client_cert {files['cert']}\nssl_client_cert_key {files['key']}"
    broker = Broker({"t": 1}, tls=context)
    await sent(broker, more, {"n": 1})
    assert len(broker.messages) == 1


@pytest.mark.parametrize(
    ("more", "mechanism"),
    [("", "PLAIN"), ("scram_mechanism sha256", "SCRAM-SHA-256"), ("scram_mechanism sha512", "SCRAM-SHA-512")],
)
async def test_sasl(more, mechanism):
    broker = Broker({"t": 1}, users={"me": "word"})
    running = await sent(broker, f"default_topic t\nsasl_over_ssl false\nusername me\npassword word\n{more}", {"n": 1})
    assert len(broker.messages) == 1
    assert set(broker.mechanisms) == {mechanism}
    assert "word" not in running.log.getvalue()


async def test_a_wrong_password_is_told_of_and_tried_again():
    broker = Broker({"t": 1}, users={"me": "right"})
    more = "default_topic t\nsasl_over_ssl false\nusername me\npassword wrongword"
    async with broker, output(conf(broker, more)) as running:
        await running.emit("t", {"n": 1})
        running.flush()
        await running.until(lambda: running.figures()["retry_count"])
        broker.users["me"] = "wrongword"
        await running.idle()
        assert "wrongword" not in running.log.getvalue()
    assert len(broker.messages) == 1


async def test_no_acknowledgements():
    broker = Broker({"t": 1})
    async with broker, output(conf(broker, "default_topic t\nrequired_acks 0")) as running:
        await running.emit("t", {"n": 1})
        await running.idle()
        await running.until(lambda: broker.messages)


async def test_every_record_is_a_message_or_told_of():
    broker = Broker({"t": 1})
    running = await sent(broker, "default_topic t", *RECORDS)
    assert len(broker.messages) + len(running.errors.records) == len(RECORDS)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("brokers a", "is not host:port"),
        ("brokers a:70000", "is not host:port"),
        ("required_acks 2", "is -1, 0 or 1"),
        ("idempotent true\nrequired_acks 1", "needs required_acks -1"),
        ("use_default_for_unknown_topic true", "default_topic must be set"),
        ("username a", "set together"),
        ("username a\npassword b", "TLS is not configured"),
        ("ssl_ca_cert /nowhere", "does not exist"),
        ("ssl_client_cert /a", "set together"),
        ("ssl_client_cert_chain a", "is removed"),
        ("principal a", "is removed"),
        ("sasl_aws_msk_iam_access_key_id a", "is removed"),
        ("compression_codec brotli", '"compression_codec"'),
        ("exclude_fields $.a[", "not an index"),
        ("topic ${tag}", '"tag" is not a chunk key'),
        ("<format>\n@type nothing\n</format>", "unknown formatter"),
    ],
)
def test_check(more, told):
    errors, _ = problems_of("output", f"<match **>\n@type kafka2\n{more}\n</match>")
    assert any(told in error for error in errors), errors


def test_a_missing_extra_is_told_of(monkeypatch):
    monkeypatch.setattr(parameters, "aiokafka_installed", lambda: False)
    errors, _ = problems_of("output", "<match **>\n@type kafka2\n</match>")
    assert any("pip install 'headrace[kafka]'" in error for error in errors), errors


def test_contract():
    asyncio.run(check_output("<match **>\n@type kafka2\nbrokers 127.0.0.1:1\ndefault_topic t\n</match>"))


def test_what_is_given_and_empty_is_not_given():
    text = "<match **>\n@type kafka2\nusername \npassword \nssl_client_cert \ndefault_topic \n</match>"
    assert problems_of("output", text.replace(" \n", ' ""\n'))[0] == []
