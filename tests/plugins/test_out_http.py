"""out_http in a pipeline, against a scripted origin: reuse, retries, formats, proxies, TLS, what check finds."""

import asyncio
import base64
import hashlib
import json
import math
import ssl
import zlib

import pytest
from http_rig import client, output, problems_of, source

from headrace.errors import Error
from headrace.pipeline.event import Batch
from headrace.plugins.out_http.auth import find_credentials
from headrace.testing.origin import Origin, Reply, ok

SECOND = 1_000_000_000


def event(record, time=1_700_000_000 * SECOND):
    return Batch.of([(time, record)])


def lines(body):
    return [json.loads(line) for line in body.splitlines()]


def one_record_chunks(threads=1, keys="", extra=""):
    return f"""
        <buffer {keys}>
          flush_mode immediate
          chunk_limit_records 1
          flush_thread_count {threads}
          flush_thread_burst_interval 0
          retry_wait 0.01
          retry_randomize false
          {extra}
        </buffer>
    """


async def delivered(origin, count):
    async with asyncio.timeout(20):
        while len(origin.requests) < count:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(("reuse", "accepts"), [("true", 1), ("false", 10)])
async def test_reuse_is_one_connection_and_without_it_one_per_chunk(reuse, accepts):
    """F01, F03: and the counters say so."""
    async with Origin() as origin:
        parameters = f"endpoint {origin.url('/x')}\nreuse_connections {reuse}\n{one_record_chunks()}"
        async with output(parameters) as (plugin, emit):
            for number in range(10):
                await emit("t", event({"n": number}))
            await delivered(origin, 10)
            await plugin.idle()
            figures = plugin.stats()["connections"]
        assert origin.accepts == accepts
        assert sorted(lines(request.body)[0]["n"] for request in origin.requests) == list(range(10))
        assert {request.header("connection") for request in origin.requests} == {
            "keep-alive" if accepts == 1 else "close"
        }
        assert figures["opened"] == accepts
        assert figures["reused"] == 10 - accepts
        await origin.all_closed()


async def test_at_most_one_connection_per_flush_thread():
    async with Origin() as origin:
        async with output(f"endpoint {origin.url()}\nreuse_connections true\n{one_record_chunks(3)}") as (plugin, emit):
            for number in range(60):
                await emit("t", event({"n": number}))
            await delivered(origin, 60)
            await plugin.idle()
            assert len(plugin.stats()["connections_by_lane"]) <= 3
        assert origin.accepts <= 3
        assert origin.peak_open <= 3
        await origin.all_closed()


async def test_another_host_closes_and_replaces_the_connection_and_another_path_does_not():
    async with Origin() as one, Origin() as two:
        parameters = f"""
            endpoint http://127.0.0.1:${{tag[0]}}/${{tag[1]}}
            reuse_connections true
            {one_record_chunks(keys="tag")}
        """
        async with output(parameters) as (plugin, emit):
            for count, (origin, path) in enumerate([(one, "a"), (one, "b"), (two, "c"), (one, "d")]):
                await emit(f"{origin.port}.{path}", event({}))
                await delivered_in_all(count + 1, one, two)
            await plugin.idle()
            assert plugin.stats()["connections"] | {"idle": 1} == {
                "opened": 3, "reused": 1, "discarded_stale": 0, "failed": 0, "replaced": 2, "resent": 0, "idle": 1,
            }  # fmt: skip
        assert [request.target for request in one.requests] == ["/a", "/b", "/d"]
        await one.all_closed()
        await two.all_closed()


async def delivered_in_all(count, *origins):
    async with asyncio.timeout(20):
        while sum(len(origin.requests) for origin in origins) < count:
            await asyncio.sleep(0.002)


async def test_a_connection_closed_by_the_peer_costs_no_chunk():
    """F02: noticed before the next request; no failure, no retry."""
    async with Origin([ok(close_after=0.01)]) as origin:
        async with output(f"endpoint {origin.url()}\nreuse_connections true\n{one_record_chunks()}") as (plugin, emit):
            for number in range(5):
                await emit("t", event({"n": number}))
                await delivered(origin, number + 1)
                await plugin.idle()
                await origin.all_closed()
            assert plugin.stats()["connections"]["discarded_stale"] == 4
            assert plugin.failures() == 0
        assert origin.accepts == 5
        assert len(origin.requests) == 5


@pytest.mark.parametrize("codes", ["[404,500]", "404,500"])
async def test_codes_that_are_tried_again(codes):
    """F04: both spellings."""
    script = [ok(status="404 Not Found"), ok(status="500 Oops"), ok()]
    async with Origin(script) as origin:
        parameters = f"endpoint {origin.url()}\nretryable_response_codes {codes}\n{one_record_chunks()}"
        async with output(parameters) as (plugin, emit):
            await emit("t", event({}))
            await delivered(origin, 3)
            await plugin.idle()
            assert plugin.failures() == 2
        assert len(origin.requests) == 3


async def test_a_code_that_is_not_listed_gives_the_chunk_up():
    async with Origin([ok(b"bad thing", status="400 Bad Request")]) as origin:
        parameters = f"""
            endpoint {origin.url()}
            retryable_response_codes 404,500
            {one_record_chunks()}
        """
        async with output(parameters) as (plugin, emit):
            await emit("t", event({"lost": 1}))
            await delivered(origin, 1)
            await plugin.given_up("400 Bad Request bad thing")
        assert len(origin.requests) == 1


async def test_error_responses_may_be_logged_and_dropped(caplog):
    async with Origin([ok(b"why", status="400 Bad Request"), ok()]) as origin:
        parameters = f"endpoint {origin.url()}\nerror_response_as_unrecoverable false\n{one_record_chunks()}"
        async with output(parameters) as (plugin, emit):
            await emit("t", event({"n": 1}))
            await emit("t", event({"n": 2}))
            await delivered(origin, 2)
            await plugin.idle()
        assert "got error response from 'Post" in caplog.text
        assert "400 Bad Request why" in caplog.text


RECORDS = [{"a": 1}, {"n": {"b": [1, None, "\u00e9"]}}, {}]


@pytest.mark.parametrize("array", ["true", "false"])
@pytest.mark.parametrize("request_gzip", [True, False])
@pytest.mark.parametrize("buffer_gzip", [True, False])
async def test_compression_of_buffer_and_request(array, request_gzip, buffer_gzip):
    """F08: encoded once, in one member, whatever is compressed."""
    async with Origin() as origin:
        parameters = f"""
            endpoint {origin.url()}
            json_array {array}
            {"compress gzip" if request_gzip else ""}
            <buffer>
              flush_mode interval
              flush_interval 1h
              flush_at_shutdown true
              {"compress gzip" if buffer_gzip else ""}
            </buffer>
        """
        async with output(parameters) as (_, emit):
            for record in RECORDS:
                await emit("t", event(record))
        (request,) = origin.requests
    body = request.body
    assert request.header("content-encoding") == ("gzip" if request_gzip else None)
    if request_gzip:
        unpacker = zlib.decompressobj(31)
        body = unpacker.decompress(body)
        assert unpacker.eof
        assert not unpacker.unused_data
    assert request.header("content-type") == ("application/json" if array == "true" else "application/x-ndjson")
    assert (json.loads(body) if array == "true" else lines(body)) == RECORDS


@pytest.mark.parametrize(
    ("parameters", "content_type"),
    [
        ("", "application/x-ndjson"),
        ("json_array true", "application/json"),
        ("<format>\n@type msgpack\n</format>", "application/x-msgpack"),
        ("compress gzip", "application/x-ndjson"),
    ],
)
async def test_round_trip_to_our_own_source(parameters, content_type):
    """F10, F35: every format arrives as it was sent."""
    async with source("add_http_headers true") as (receiver, taken):
        text = f"endpoint http://localhost:{receiver.bound}/a/b\n{parameters}\n<buffer>\nflush_interval 1h\n</buffer>"
        async with output(text) as (_, emit):
            await emit("t", Batch.of([(SECOND, record) for record in RECORDS]))
        told = [
            {name: record.pop(name) for name in list(record) if name.startswith("HTTP_")} for record in taken.records
        ]
        assert [fields["HTTP_CONTENT_TYPE"] for fields in told] == [content_type] * 3
        assert taken.records == RECORDS
        assert taken.tags == ["a.b"]
        assert receiver.stats()["refused"] == {}


async def test_an_empty_path_is_an_empty_tag():
    async with source() as (receiver, taken):
        async with output(f"endpoint http://localhost:{receiver.bound}\n<buffer>\nflush_interval 1h\n</buffer>") as (
            _,
            emit,
        ):
            await emit("t", event({"a": 1}))
        assert taken.tags == [""]


async def test_the_time_keeps_its_nanoseconds():
    async with Origin() as origin:
        parameters = f"""
            endpoint {origin.url()}
            <format>
              @type out_file
              time_format %Y-%m-%dT%H:%M:%S.%NZ
              utc true
            </format>
            <buffer>
              flush_interval 1h
            </buffer>
        """
        async with output(parameters) as (_, emit):
            await emit("t", Batch.of([(1700000000_123456789, {"a": 1}), (1700000000 * SECOND, {"a": 2})]))
        text = origin.requests[0].body.decode()
        assert "2023-11-14T22:13:20.123456789Z\t" in text
        assert "2023-11-14T22:13:20.000000000Z\t" in text


async def test_headers_placeholders_methods_and_basic_auth():
    async with Origin() as origin:
        parameters = f"""
            endpoint {origin.url()}/${{tag}}/${{$.k.v}}
            http_method put
            content_type application/custom
            headers {{"X-Fixed":"one","x-twice":"a"}}
            headers_from_placeholders {{"X-Tag":"app-${{tag}}","X-Twice":"${{$.k.v}}"}}
            <auth>
              method basic
              username us\u00e9r
              password p:ss
            </auth>
            {one_record_chunks(keys="tag,$.k.v")}
        """
        async with output(parameters) as (_, emit):
            await emit("a.b", event({"k": {"v": "x y"}}))
            await delivered(origin, 1)
        (request,) = origin.requests
    assert (request.method, request.target) == ("PUT", "/a.b/x%20y")
    assert request.header("x-fixed") == "one"
    assert request.header("x-tag") == "app-a.b"
    assert [value for name, value in request.headers if name.lower() == "x-twice"] == ["x y"]
    assert request.header("content-type") == "application/custom"
    assert request.header("authorization") == "Basic " + base64.b64encode("us\u00e9r:p:ss".encode()).decode()
    assert request.header("host") == f"127.0.0.1:{origin.port}"


async def test_a_header_value_with_a_line_break_is_given_up():
    async with Origin() as origin:
        parameters = f"""
            endpoint {origin.url()}
            headers_from_placeholders {{"X-K":"${{k}}"}}
            {one_record_chunks(keys="k")}
        """
        async with output(parameters) as (plugin, emit):
            await emit("t", event({"k": "a\r\nEvil: 1"}))
            await plugin.given_up("line break")
            await emit("t", event({"k": "good"}))
            await delivered(origin, 1)
        assert [request.header("x-k") for request in origin.requests] == ["good"]


async def test_hosts_of_a_dynamic_endpoint():
    async with Origin() as origin:
        parameters = f"""
            endpoint http://${{host}}:{origin.port}/
            allowed_hosts 127.0.0.1
            {one_record_chunks(keys="host")}
        """
        async with output(parameters) as (plugin, emit):
            await emit("t", event({"host": "localhost"}))
            await plugin.given_up("Not allowed host: localhost")
            await emit("t", event({"host": "127.0.0.1"}))
            await delivered(origin, 1)


async def test_records_that_json_cannot_hold_do_not_block_the_others():
    """F23."""
    async with Origin() as origin:
        async with output(f"endpoint {origin.url()}\n{one_record_chunks()}") as (plugin, emit):
            for value in ("ok1", "\udcff\udcfe", math.nan, "ok2"):
                await emit("t", event({"m": value}))
            await plugin.idle()
        values = [record["m"] for request in origin.requests for record in lines(request.body)]
    assert "ok1" in values
    assert "ok2" in values


class Certificates:
    def __init__(self, folder):
        trustme = pytest.importorskip("trustme")
        self.ca = trustme.CA()
        self.path = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.path)
        cert = self.ca.issue_cert("localhost", "127.0.0.1")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cert.configure_cert(self.server)
        self.names = []
        self.server.sni_callback = lambda _socket, name, _context: self.names.append(name)
        own = self.ca.issue_cert("client@example.org")
        own.cert_chain_pems[0].write_to_path(folder / "client.pem")
        own.private_key_pem.write_to_path(folder / "client-key.pem")


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


async def test_tls(certificates, tmp_path):
    certificates.server.verify_mode = ssl.CERT_REQUIRED
    certificates.ca.configure_trust(certificates.server)
    async with Origin(tls=certificates.server) as origin:
        parameters = f"""
            endpoint https://localhost:{origin.port}/
            reuse_connections true
            tls_ca_cert_path {certificates.path}
            tls_client_cert_path {tmp_path}/client.pem
            tls_private_key_path {tmp_path}/client-key.pem
            tls_version TLSv1_3
            {one_record_chunks()}
        """
        async with output(parameters) as (plugin, emit):
            for number in range(5):
                await emit("t", event({"n": number}))
                await delivered(origin, number + 1)
            await plugin.idle()
            assert plugin.stats()["connections"]["opened"] == 1
    assert certificates.names == ["localhost"]


@pytest.mark.parametrize("verify", ["tls_ca_cert_path OTHER", "tls_verify_mode none"])
async def test_who_is_trusted(certificates, tmp_path, verify):
    other = tmp_path / "other"
    other.mkdir()
    wrong = Certificates(other).path
    async with Origin(tls=certificates.server) as origin:
        parameters = f"endpoint {origin.url()}\n{verify.replace('OTHER', str(wrong))}\n{one_record_chunks()}"
        async with output(parameters) as (plugin, emit):
            await emit("t", event({}))
            if "none" in verify:
                await delivered(origin, 1)
            else:
                await plugin.failed(1)
                assert not origin.requests


@pytest.mark.parametrize("by", ["parameter", "environment"])
async def test_a_proxy_for_https(certificates, monkeypatch, by):
    """F09: CONNECT with the target's name, TLS through it, the target's own name in SNI."""
    async with Origin(tls=certificates.server) as origin, Origin(tunnel=True) as proxy:
        url = f"http://user:secret@127.0.0.1:{proxy.port}"
        monkeypatch.setenv("https_proxy", url if by == "environment" else "http://127.0.0.1:1")
        parameters = f"""
            endpoint https://localhost:{origin.port}/
            {f"proxy {url}" if by == "parameter" else ""}
            reuse_connections true
            tls_ca_cert_path {certificates.path}
            {one_record_chunks()}
        """
        async with output(parameters) as (_, emit):
            for number in range(3):
                await emit("t", event({"n": number}))
                await delivered(origin, number + 1)
        (asked,) = proxy.requests
        assert (asked.method, asked.target) == ("CONNECT", f"localhost:{origin.port}")
        assert asked.header("proxy-authorization") == "Basic " + base64.b64encode(b"user:secret").decode()
        assert certificates.names == ["localhost"]
        assert origin.accepts == 1
        assert all(request.header("proxy-authorization") is None for request in origin.requests)


async def test_a_proxy_for_http(monkeypatch):
    async with Origin() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("http_proxy", raising=False)
        parameters = f"endpoint http://nowhere.invalid/x?y\nreuse_connections true\n{one_record_chunks()}"
        async with output(parameters) as (_, emit):
            await emit("t", event({}))
            await delivered(proxy, 1)
        assert proxy.requests[0].target == "http://nowhere.invalid/x?y"
        assert proxy.requests[0].header("host") == "nowhere.invalid"
        assert proxy.requests[0].header("proxy-authorization") == "Basic " + base64.b64encode(b"user:secret").decode()


async def test_a_proxy_that_speaks_tls_has_its_own_settings(certificates, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    proxy_certificates = Certificates(other)
    async with Origin(tls=certificates.server) as origin, Origin(tunnel=True, tls=proxy_certificates.server) as proxy:
        parameters = f"""
            endpoint https://localhost:{origin.port}/
            proxy https://localhost:{proxy.port}
            tls_ca_cert_path {certificates.path}
            proxy_tls_ca_cert_path {proxy_certificates.path}
            {one_record_chunks()}
        """
        async with output(parameters) as (_, emit):
            await emit("t", event({}))
            await delivered(origin, 1)
        assert proxy.accepts == 1


async def test_the_receiver_dies_in_the_middle_and_every_event_arrives():
    seen = set()

    def script(request):
        number = lines(request.body)[0]["n"]
        # Every seventh request dies unanswered, the second time it is answered.
        if number % 7 == 0 and number not in dead:
            dead.add(number)
            return Reply(b"", reset=True)
        seen.add(number)
        return ok(close_after=0.005 if number % 5 == 0 else None)

    dead = set()
    async with Origin(script) as origin:
        async with output(f"endpoint {origin.url()}\nreuse_connections true\n{one_record_chunks(4)}") as (plugin, emit):
            for number in range(100):
                await emit("t", event({"n": number}))
                if number == 50:
                    await origin.stop()
                    await plugin.failed(1)
                    await origin.__aenter__()
            await plugin.idle()
        assert seen == set(range(100))


async def test_the_end_does_not_wait_for_a_destination_that_hangs():
    origin = Origin([Reply(b"", hold=True)])
    async with (
        origin,
        output(f"endpoint {origin.url()}\nreuse_connections true\n{one_record_chunks()}") as (running, emit),
    ):
        await emit("t", event({}))
        await delivered(origin, 1)
        await running.runner.stop(running.plugin.context.clock.now() + 0.05)
        await running.plugin.stop()
        await origin.all_closed()
        assert running.runner.lost == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("", 'parameter "endpoint" is required'),
        ("endpoint localhost:80", "not an http or https URL"),
        ("endpoint http://h/${tag}", '"tag" is not a chunk key'),
        ("endpoint http://h/%Y", '"time" is not a chunk key'),
        ('endpoint http://h/\nheaders_from_placeholders {"a":"${k}"}', '"k" is not a chunk key'),
        ("endpoint http://${tag}/\n<buffer tag>\n</buffer>", "allowed_hosts is required"),
        ('endpoint http://h/\nheaders {"a b":"c"}', "no name of a header field"),
        ('endpoint http://h/\nheaders {"Content-Length":"1"}', "cannot be set"),
        ("endpoint http://h/\nretryable_response_codes 5x", "no HTTP status code"),
        ("endpoint http://h/\nproxy socks5://p", "proxy is no http or https URL"),
        ("endpoint http://h/\njson_array true\n<format>\n@type ltsv\n</format>", "json_array option"),
        ("endpoint https://h/\ntls_ca_cert_path /nowhere", "tls_ca_cert_path is wrong: /nowhere"),
        ("endpoint https://h/\ntls_ciphers nonsense", "nonsense"),
        ("endpoint http://h/\n<auth>\n</auth>", "needs username"),
        ("endpoint http://h/\n<auth>\nmethod aws_sigv4\naws_region r\n</auth>", "aws_service is required"),
        ("endpoint http://h/\nreuse_connection true", 'did you mean "reuse_connections"?'),
    ],
)
def test_wrong_configurations(parameters, message):
    errors, _ = problems_of("output", f"<match **>\n@type http\n{parameters}\n</match>\n")
    assert message in " ".join(errors)
    assert "test.conf:" in errors[0]


def test_aws_without_botocore_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("headrace.plugins.out_http.parameters.botocore_installed", lambda: False)
    auth = "<auth>\nmethod aws_sigv4\naws_region r\naws_service s\n</auth>"
    errors, _ = problems_of("output", f"<match **>\n@type http\nendpoint http://h/\n{auth}\n</match>\n")
    assert "pip install 'headrace[aws]'" in errors[0]


async def test_aws_signatures_are_made_for_each_request(monkeypatch):
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with Origin() as origin:
        parameters = f"""
            endpoint {origin.url("/log")}
            reuse_connections true
            <auth>
              method aws_sigv4
              aws_service osis
              aws_region us-east-1
            </auth>
            {one_record_chunks()}
        """
        async with output(parameters) as (_, emit):
            for number in range(2):
                await emit("t", event({"n": number}))
                await delivered(origin, number + 1)
    first, second = origin.requests
    assert "Credential=AKIDEXAMPLE/" in first.header("authorization")
    assert first.header("x-amz-content-sha256") == hashlib.sha256(first.body).hexdigest()
    assert first.header("authorization") != second.header("authorization")
    assert first.header("content-length") == str(len(first.body))


async def test_aws_without_credentials_is_tried_again(monkeypatch, tmp_path):
    pytest.importorskip("botocore")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Error, match="no AWS credentials found") as caught:
        await find_credentials("us-east-1", None)
    assert caught.value.retryable


async def test_a_full_buffer_is_a_503_of_the_source_and_recovery_is_automatic():
    """F20: from the source through the buffer to a destination that stalls."""
    answers = [Reply(b"", hold=True)]
    async with (
        Origin(lambda _request: answers[-1]) as origin,
        source() as (receiver, taken),
        client(receiver.bound) as conn,
    ):
        parameters = f"""
            endpoint {origin.url()}
            reuse_connections true
            read_timeout 0.2
            <buffer>
              flush_mode immediate
              chunk_limit_size 1k
              total_limit_size 4k
              retry_wait 0.05
              retry_max_interval 0.05
              flush_thread_burst_interval 0
            </buffer>
        """
        async with output(parameters) as (running, _):
            taken.emit = running.plugin.emit
            record = json.dumps([{"m": "x" * 90}] * 5).encode()
            statuses = []
            while not statuses or statuses[-1] == 200:
                statuses.append((await conn.post("/t", record))[0])
            assert statuses[-1] == 503
            accepted = statuses.count(200)
            assert accepted > 2
            assert (await conn.post("/t", record))[0] == 503
            answers.append(ok())
            async with asyncio.timeout(20):
                while (await conn.post("/t", record))[0] != 200:
                    await asyncio.sleep(0.01)
            await running.idle()
        received = [record for request in origin.requests for record in lines(request.body)]
        # The stalled requests may have been counted twice by the origin, none may be missing.
        assert len(received) >= (accepted + 1) * 5
