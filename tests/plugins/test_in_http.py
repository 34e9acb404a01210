"""in_http on real sockets: what is accepted, what is refused and how, and that nothing of a refusal is kept."""

import asyncio
import gzip
import json
import os
import ssl
import subprocess
import zlib
from pathlib import Path

import msgpack
import pytest
from http_rig import Taken, client, context_of, make, problems_of, source

from headrace.core.listener import adopt_listener
from headrace.errors import BufferOverflow
from headrace.testing.plugin import need


async def posted(parameters, *requests):
    """The replies and what was taken, of requests on one connection."""
    async with source(parameters) as (plugin, taken), client(plugin.bound) as conn:
        replies = [await conn.post(*request) for request in requests]
        return replies, taken


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("/", ""),
        ("/a", "a"),
        ("/a/b.c", "a.b.c"),
        ("/a/b/", "a.b"),
        ("/a%20b", "a%20b"),
        ("/a?x=/y", "a"),
        ("//a", ".a"),
    ],
)
async def test_the_path_is_the_tag(path, tag):
    replies, taken = await posted("", (path, b'{"a":1}'))
    assert replies[0][0] == 200
    assert taken.tags == [tag]


async def test_add_tag_prefix():
    _, taken = await posted("add_tag_prefix pre", ("/a", b"{}"), ("/", b"{}"))
    assert taken.tags == ["pre.a", "pre."]


async def test_an_answer_as_fluentd_writes_it():
    async with source() as (plugin, _), client(plugin.bound) as conn:
        conn.writer.write(
            b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        answer = await conn.reader.readuntil(b"\r\n\r\n")
    assert (
        answer == b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"
    )


RECORDS = [{"a": 1}, {"n": {"b": [1, None]}, "u": "\u00e9\U0001f600"}, {}]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", json.dumps(RECORDS).encode()),
        ("APPLICATION/JSON; charset=utf-8", json.dumps(RECORDS).encode()),
        ("application/csp-report", json.dumps(RECORDS).encode()),
        ("application/x-ndjson", b"\n".join(json.dumps(record).encode() for record in RECORDS) + b"\n"),
        ("application/msgpack", b"".join(map(msgpack.packb, RECORDS))),
        ("application/x-msgpack", msgpack.packb(RECORDS)),
        ("application/x-www-form-urlencoded", b"json=" + json.dumps(RECORDS).encode()),
        ("application/x-www-form-urlencoded", b"x=1&ndjson=" + b"%0A".join(json.dumps(r).encode() for r in RECORDS)),
        (
            "multipart/form-data; boundary=xx",
            b'--xx\r\nContent-Disposition: form-data; name="json"\r\n\r\n'
            + json.dumps(RECORDS).encode()
            + b"\r\n--xx--\r\n",
        ),
    ],
)
async def test_every_format(content_type, body):
    replies, taken = await posted("", ("/t", body, content_type))
    assert replies[0][0] == 200
    assert taken.records == RECORDS
    assert len(taken.batches) == 1


async def test_records_in_the_query():
    replies, taken = await posted("", ("/t?json=%7B%22q%22%3A1%7D", b"", ""))
    assert replies[0][0] == 200
    assert taken.records == [{"q": 1}]


async def test_a_semicolon_belongs_to_the_value():
    _, taken = await posted("", ("/t", b'json={"m":"a; b"}', "application/x-www-form-urlencoded"))
    assert taken.records == [{"m": "a; b"}]


@pytest.mark.parametrize(
    ("content_type", "body", "reason"),
    [
        ("application/json", b'{"a":1}\n{bad', b"invalid JSON"),
        ("application/json", b'[{"a":1},5]', b"must be an object"),
        ("application/x-ndjson", b'{"a":1}\n{bad\n{"c":2}', b"line 2"),
        ("application/msgpack", msgpack.packb({"a": 1}) + b"\x81\xa1b", b"cut short"),
        ("text/plain", b"{}", b"'json', 'ndjson' or 'msgpack' parameter is required"),
        ("application/x-www-form-urlencoded", b"xxx", b"parameter is required"),
        ("application/json", b'[{"a":1},{"time":"noon"}]', b"can't convert str"),
        ("application/json", b'{"time":1' + b"0" * 30 + b"}", b"out of range"),
        ("application/json", b'{"time":1e300}', b"invalid time"),
    ],
)
async def test_wrong_input_gets_the_reason_and_nothing_is_kept(content_type, body, reason):
    replies, taken = await posted("", ("/t", body, content_type), ("/t", b'{"next":1}'))
    status, headers, text = replies[0]
    assert status == 400
    assert text.startswith(b"400 Bad Request\n")
    assert reason in text
    assert headers["connection"] == "Keep-Alive"
    assert taken.records == [{"next": 1}]


async def test_a_tag_that_is_not_utf8_is_refused_and_the_connection_stays():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        bad = b"POST /\x66\x93\xa7 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        assert (await conn.ask(bad))[0] == 400
        assert (await conn.post("/good", b"{}"))[0] == 200
    assert taken.tags == ["good"]


SECOND = 1_000_000_000


async def test_times():
    before = 1_600_000_000 * SECOND
    _, taken = await posted(
        "",
        ("/t?time=1518756037.3137116", b"{}"),
        ("/t?time=1518756037.123456789", b'{"time":5}'),
        ("/t", b"json={}&time=1700000000", "application/x-www-form-urlencoded"),
        ("/t", b'[{"time":1700000000.123456,"a":1},{"time":1700000001},{"time":null}]'),
        ("/t?time=abc", b"{}"),
    )
    times = taken.times
    assert times[:5] == [
        1518756037_313711600,
        1518756037_123456789,
        1700000000 * SECOND,
        1700000000_123456000,
        1700000001 * SECOND,
    ]
    assert all(time > before for time in times[5:])
    assert taken.records == [{}, {"time": 5}, {}, {"a": 1}, {}, {}, {}]


async def test_another_time_key_that_is_kept():
    _, taken = await posted("<parse>\ntime_key ts\nkeep_time_key true\n</parse>", ("/t", b'{"ts":1.5}'))
    assert taken.times == [1_500_000_000]
    assert taken.records == [{"ts": 1.5}]


async def test_times_that_are_texts():
    parameters = "<parse>\ntime_format %Y-%m-%d %H:%M:%S.%N %z\n</parse>"
    replies, taken = await posted(
        parameters, ("/t", b'{"time":"2023-11-14 22:13:20.123456789 +0000"}'), ("/t", b'{"time":"noon"}')
    )
    assert taken.times == [1700000000_123456789]
    assert [reply[0] for reply in replies] == [200, 400]
    assert b"invalid time" in replies[1][2]


async def test_compressed_bodies():
    body = b'[{"a":1},{"b":2}]'
    two = gzip.compress(body[:9]) + gzip.compress(body[9:])
    replies, taken = await posted(
        "body_size_limit 1k\ndecompression_size_limit 2k",
        ("/t", two, "application/json", "Content-Encoding: gzip"),
        ("/t", zlib.compress(body), "application/json", "Content-Encoding: deflate"),
        ("/t", b"no gzip", "application/json", "Content-Encoding: gzip"),
        ("/t", body, "application/json", "Content-Encoding: br"),
    )
    assert [reply[0] for reply in replies] == [200, 200, 400, 415]
    assert taken.records == [{"a": 1}, {"b": 2}] * 2
    (bomb,), taken = await posted(
        "decompression_size_limit 2k",
        ("/t", gzip.compress(b" " * 4096 + body), "application/json", "Content-Encoding: gzip"),
    )
    assert bomb[0] == 413
    assert not taken.batches


async def test_body_size_limit():
    async with source("body_size_limit 10") as (plugin, taken):
        async with client(plugin.bound) as conn:
            assert (await conn.post("/t", b'{"a":1234}'))[0] == 200
            status, _, body = await conn.post("/t", b'{"a":12345}')
            assert (status, body) == (413, b"Too large")
        async with client(plugin.bound) as conn:
            chunked = (
                b"POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            assert (await conn.ask(chunked + b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'))[0] == 200
            assert (await conn.ask(chunked + b"b\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n"))[0] == 413
    assert taken.records == [{"a": 1234}, {"a": 1}]


async def test_a_body_in_pieces_and_pipelined_requests():
    one = b"POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        conn.writer.write(one + b'{"a"')
        await conn.writer.drain()
        await asyncio.sleep(0.02)
        conn.writer.write(b":1}" + one + b'{"b":2}' + one + b'{"c":3}')
        assert [(await conn.reply())[0] for _ in range(3)] == [200] * 3
    assert taken.records == [{"a": 1}, {"b": 2}, {"c": 3}]


async def test_expect_continue():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        head = b"POST /t HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        assert (await conn.ask(head))[0] == 100
        assert (await conn.ask(b"{}"))[0] == 200
    assert taken.records == [{}]


async def test_http10_and_connection_close():
    async with source() as (plugin, _):
        for head in (b"POST /t HTTP/1.0\r\n", b"POST /t HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"):
            async with client(plugin.bound) as conn:
                status, headers, _ = await conn.ask(
                    head + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
                )
                assert status == 200
                assert headers["connection"] == "close"
                assert await conn.at_end()


async def test_answers_that_a_client_may_ask_for():
    replies, _ = await posted("use_204_response true", ("/t", b"{}"))
    assert replies[0][0] == 204
    assert "content-length" not in replies[0][1]
    replies, _ = await posted("respond_with_empty_img true", ("/t", b"{}"))
    assert replies[0][1]["content-type"] == "image/gif"
    assert replies[0][2].startswith(b"GIF89a\1\0\1\0")


async def test_get_is_a_health_check():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        assert (await conn.ask(b"GET /t?json={} HTTP/1.1\r\nHost: h\r\n\r\n"))[0] == 200
        assert (await conn.post("/t", b"{}", method="PUT"))[0] == 200
    assert taken.records == [{}]


async def test_fields_that_are_added():
    _, taken = await posted(
        "add_http_headers true\nadd_remote_addr true\nadd_query_params true",
        ("/t?q-a=1", b'{"a":1}', "application/json", "X-Foo: 1", "X-Foo: 2", "x_under: 3"),
    )
    (record,) = taken.records
    assert record["REMOTE_ADDR"] == "127.0.0.1"
    assert record["HTTP_X_FOO"] == ["1", "2"]
    assert record["HTTP_X_UNDER"] == "3"
    assert record["HTTP_HOST"] == "h"
    assert record["QUERY_Q_A"] == "1"
    assert record["a"] == 1


async def test_remote_address_is_the_first_that_was_forwarded():
    _, taken = await posted(
        "add_remote_addr true",
        ("/t", b"{}", "application/json", "X-Forwarded-For: host1, host2", "X-Forwarded-For: host3"),
        ("/t", b"{}"),
    )
    assert [record["REMOTE_ADDR"] for record in taken.records] == ["host1", "127.0.0.1"]


async def test_cors():
    origins = 'cors_allow_origins ["http://a.example","http://*.b.example"]\ncors_allow_credentials true'
    async with source(origins) as (plugin, taken), client(plugin.bound) as conn:
        preflight = b"OPTIONS /t HTTP/1.1\r\nHost: h\r\nOrigin: http://a.example\r\nAccess-Control-Request-Method: %s\r\nAccess-Control-Request-Headers: x-y\r\n\r\n"
        status, headers, _ = await conn.ask(preflight % b"POST")
        assert status == 200
        assert headers["access-control-allow-origin"] == "http://a.example"
        assert headers["access-control-allow-headers"] == "x-y"
        assert headers["access-control-allow-credentials"] == "true"
        assert (await conn.ask(preflight % b"DELETE"))[0] == 403
        assert (await conn.post("/t", b"{}", "application/json", "Origin: http://evil.example"))[0] == 403
        status, headers, _ = await conn.post("/t", b"{}", "application/json", "Origin: http://x.b.example")
        assert (status, headers["access-control-allow-origin"]) == (200, "http://x.b.example")
        status, headers, _ = await conn.post("/t", b"{", "application/json", "Origin: http://a.example")
        assert (status, headers["access-control-allow-origin"]) == (400, "http://a.example")
        assert (await conn.post("/t", b"{}"))[0] == 200
    assert len(taken.records) == 2


async def test_options_without_cors():
    async with source() as (plugin, _), client(plugin.bound) as conn:
        assert (await conn.ask(b"OPTIONS /t HTTP/1.1\r\nHost: h\r\n\r\n"))[0] == 403


async def test_full_buffers_are_a_status_and_recovery_is_automatic():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        taken.refuse = BufferOverflow("buffer space has too many data")
        status, headers, body = await conn.post("/t", b'[{"a":1},{"a":2}]')
        assert status == 503
        assert b"too many data" in body
        assert headers["retry-after"] == "1"
        assert not taken.batches
        taken.refuse = None
        assert (await conn.post("/t", b'{"a":3}'))[0] == 200
        assert plugin.stats()["refused"] == {"503": 1}
    assert taken.records == [{"a": 3}]


async def test_the_answer_waits_until_the_buffers_have_it():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        room = asyncio.Event()
        taken.refuse = lambda _tag, _batch: room.wait()
        asking = asyncio.ensure_future(conn.post("/t", b"{}"))
        while not taken.batches:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert not asking.done()
        room.set()
        assert (await asking)[0] == 200


async def test_an_overflow_after_waiting():
    async def full(_tag, _batch):
        raise BufferOverflow("still full")

    async with source() as (plugin, taken), client(plugin.bound) as conn:
        taken.refuse = full
        assert (await conn.post("/t", b"{}"))[0] == 503


async def test_an_output_that_fails_is_a_500():
    async with source() as (plugin, taken), client(plugin.bound) as conn:
        taken.refuse = RuntimeError("broken output")
        status, _, body = await conn.post("/t", b"{}")
        assert (status, body[:25]) == (500, b"500 Internal Server Error")
        taken.refuse = None
        assert (await conn.post("/t", b"{}"))[0] == 200


async def test_nothing_is_acknowledged_that_was_not_taken_at_the_end():
    """F25: requests under way when the source stops are answered only when their events are in."""
    taken = Taken()
    acknowledged = 0
    async with source(taken=taken) as (plugin, _), client(plugin.bound) as idle, client(plugin.bound) as busy:
        assert (await idle.post("/t", b"{}"))[0] == 200
        room = asyncio.Event()
        taken.refuse = lambda _tag, _batch: room.wait()
        asking = asyncio.ensure_future(busy.post("/t", b"{}"))
        while len(taken.batches) < 2:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(plugin.quiesce())
        assert await idle.at_end()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", plugin.bound)
        assert not stopping.done()
        room.set()
        status, headers, _ = await asking
        acknowledged += status == 200
        assert headers["connection"] == "close"
        assert await busy.at_end()
        await stopping
    assert acknowledged == 1
    assert len(taken.records) == 2


async def test_idle_connections_are_closed():
    async with source("keepalive_timeout 0.1") as (plugin, _), client(plugin.bound) as conn:
        assert (await conn.post("/t", b"{}"))[0] == 200
        assert await conn.at_end()


async def test_a_parser_of_ones_own():
    parsed = "<parse>\n@type csv\nkeys a,b\n</parse>"
    replies, taken = await posted(parsed, ("/t", b"1,2", "application/json"))
    assert replies[0][0] == 200
    assert taken.records == [{"a": "1", "b": "2"}]
    parsed = "<parse>\n@type json\n</parse>"
    replies, taken = await posted(parsed, ("/t", b"{bad"), ("/t", b'{"time":5,"a":1}'))
    assert [reply[0] for reply in replies] == [400, 200]
    assert taken.records == [{"a": 1}]
    assert taken.times == [5 * SECOND]


async def test_tls(tmp_path):
    trustme = pytest.importorskip("trustme")
    ca = trustme.CA()
    cert = ca.issue_cert("localhost")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    base = f"<transport tls>\ncert_path {tmp_path}/cert.pem\nprivate_key_path {tmp_path}/key.pem\n"

    def context(*, own=None, version=None):
        made = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        if own:
            own.configure_cert(made)
        if version:
            made.minimum_version = version
        return made

    async with source(base + "</transport>") as (plugin, taken):
        async with client(plugin.bound, ssl=context(), server_hostname="localhost") as conn:
            assert conn.writer.get_extra_info("ssl_object").version() == "TLSv1.2"
            assert (await conn.post("/t", b"{}"))[0] == 200
            assert (await conn.post("/t", b"[" + b"{}," * 50_000 + b"{}]"))[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with client(plugin.bound, ssl=context(version=ssl.TLSVersion.TLSv1_3), server_hostname="localhost"):
                pass
        assert len(taken.records) == 50_002
    mutual = base + f"version TLSv1_3\nclient_cert_auth true\nca_path {tmp_path}/ca.pem\n</transport>"
    async with source(mutual) as (plugin, taken):
        own = ca.issue_cert("client@example.org")
        async with client(plugin.bound, ssl=context(own=own), server_hostname="localhost") as conn:
            assert (await conn.post("/t", b"{}"))[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with client(plugin.bound, ssl=context(), server_hostname="localhost") as conn:
                await conn.post("/t", b"{}")
        assert len(taken.records) == 1


async def test_a_handshake_that_never_comes_does_not_hold_the_end():
    async with source("<transport tls>\ninsecure true\n</transport>") as (plugin, _), client(plugin.bound) as conn:
        while plugin._listener.accepted == 0:
            await asyncio.sleep(0.001)
        await plugin.quiesce()
        assert await conn.at_end()


@pytest.mark.parametrize("signed_by", ["itself", "a CA"])
async def test_a_certificate_made_at_start(tmp_path, signed_by):
    trustme = pytest.importorskip("trustme")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ca.private_key_pem.write_to_path(tmp_path / "ca-key.pem")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    how = f"ca_cert_path {tmp_path}/ca.pem\nca_private_key_path {tmp_path}/ca-key.pem"
    if signed_by == "itself":
        how = "insecure true"
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    parameters = f"<transport tls>\n{how}\ngenerate_cert_common_name logs.example\n</transport>"
    async with source(parameters) as (plugin, taken):
        async with client(plugin.bound, ssl=context, server_hostname="logs.example") as conn:
            assert (await conn.post("/t", b"{}"))[0] == 200
            der = conn.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert b"Mountain View" in der
        folder = Path(plugin.transport.tls.key).parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    assert len(taken.records) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("cors_allow_credentials true", "cors_allow_origins"),
        ('cors_allow_credentials true\ncors_allow_origins ["*"]', "cors_allow_origins"),
        ('add_tag_prefix ""', "must not be empty"),
        ("port 70000", "out of range"),
        ("body_size 1", 'did you mean "body_size_limit"?'),
        ("<transport tls>\n</transport>", "one of cert_path, ca_cert_path and insecure"),
        ("<transport tls>\ncert_path /c\n</transport>", "needs private_key_path"),
        ("<transport tls>\nca_cert_path /c\n</transport>", "needs ca_private_key_path"),
        ("<transport tls>\nca_cert_path /no/c\nca_private_key_path /no/k\n</transport>", 'cannot load "/no/c"'),
        ("<transport tls>\ninsecure true\ncert_verifier x.rb\n</transport>", "not supported"),
        ("<transport tls>\ninsecure true\nensure_fips true\n</transport>", "FIPS mode"),
        ("<transport tls>\ninsecure true\nclient_cert_auth true\n</transport>", "needs ca_path"),
        ("<transport tls>\ncert_path /no/c\nprivate_key_path /no/k\n</transport>", '"/no/c" does not exist'),
        ("<transport tls>\nmin_version TLSv1_2\n</transport>", "set together"),
        ("<parse>\n@type nosuch\n</parse>", "nosuch"),
        ("<parse>\ntime_kye t\n</parse>", 'did you mean "time_key"?'),
    ],
)
def test_wrong_configurations(parameters, message):
    errors, _ = problems_of("input", f"<source>\n@type http\n{parameters}\n</source>\n")
    assert message in " ".join(errors)
    assert "test.conf:" in errors[0]


def test_a_parameter_without_effect_warns():
    errors, warnings = problems_of("input", "<source>\n@type http\nblocking_timeout 1s\n</source>\n")
    assert not errors
    assert "no effect" in warnings[0]


async def curl(*arguments):
    child = await asyncio.create_subprocess_exec(
        need("curl"), "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", *arguments, stdout=subprocess.PIPE
    )
    return int((await child.communicate())[0])


async def test_the_examples_of_the_documentation_by_curl(tmp_path):
    packed = gzip.compress(b'json={"gz":1}')
    (tmp_path / "json.gz").write_bytes(packed)
    (tmp_path / "big").write_bytes(b'{"big":"' + b"x" * 2_000_000 + b'"}')
    async with source() as (plugin, taken):
        url = f"http://127.0.0.1:{plugin.bound}/app.log"
        for arguments in (
            ["-d", 'json={"foo":"bar"}'],
            ["-d", 'ndjson={"k1":"v1"}\n{"k2":"v2"}\n'],
            ["-d", '{"foo":"json"}', "-H", "Content-Type: application/json"],
            ["-F", 'json={"message":"foo+bar"}'],
            ["--data-binary", f"@{tmp_path}/json.gz", "-H", "Content-Encoding: gzip"],
            ["--data-binary", f"@{tmp_path}/big", "-H", "Content-Type: application/json"],
        ):
            assert await curl("-X", "POST", *arguments, url) == 200, arguments
    assert taken.records[:-1] == [
        {"foo": "bar"},
        {"k1": "v1"},
        {"k2": "v2"},
        {"foo": "json"},
        {"message": "foo+bar"},
        {"gz": 1},
    ]
    assert len(taken.records[-1]["big"]) == 2_000_000
    assert set(taken.tags) == {"app.log"}


async def test_workers_share_one_socket():
    """Two sources on one listening socket, as in two workers: every connection is served, by either."""
    first, second = Taken(), Taken()
    async with source(taken=first) as (one, _):
        shared = adopt_listener(os.dup(one.context.sockets[one.address].fileno()))
        context = context_of(workers=2, worker_id=1)
        context.root.add_output("**", second)
        two = make("input", "<source>\n@type http\nbind 127.0.0.1\nport 0\n</source>\n", context)
        context.run_on(one.context.loop, one.context.clock, {two.address: shared})
        await two.start()
        for _ in range(20):
            async with client(one.bound) as conn:
                assert (await conn.post("/t", b"{}"))[0] == 200
        await two.quiesce()
        async with client(one.bound) as conn:
            assert (await conn.post("/t", b"{}"))[0] == 200
        await two.stop()
        assert len(first.records) + len(second.records) == 21


async def test_a_source_that_was_never_started_can_be_ended():
    plugin = make("input", "<source>\n@type http\n</source>\n")
    assert plugin.stats() == {}
    await plugin.quiesce()
    await plugin.stop()
    await plugin.close()
