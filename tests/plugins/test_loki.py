"""The loki output, against a scripted Loki."""

import asyncio
import base64
import gzip
import json
import ssl

import pytest
import trustme
from eco_rig import TIME, output
from http_rig import problems_of

from headrace.pipeline.event import Batch
from headrace.testing.contracts import RECORDS, check_output
from headrace.testing.origin import Origin, Reply, ok

BUFFER = "<buffer {keys}>\nflush_mode interval\nretry_wait 0.01\nretry_randomize false\n{extra}\n</buffer>"


async def sent(more, *records, replies=(), keys="", extra="", tag="app"):
    async with Origin([*replies, ok(status="204 No Content")]) as origin:
        text = f"@type loki\nurl {origin.url()}\n{more}\n" + BUFFER.format(keys=keys, extra=extra)
        async with output(text) as running:
            await running.emit(tag, *records)
            await running.idle()
            running.stats = running.plugin.stats()
            running.counted = running.figures()
    running.requests = origin.requests
    return running


def streams(request):
    body = gzip.decompress(request.body) if request.header("content-encoding") == "gzip" else request.body
    return json.loads(body)["streams"]


async def test_one_stream_of_key_value_lines():
    record = {"m": 'say "hi" \\', "n": 5, "eq": "a=b", "nest": {"a": [1, None]}, "t": True, "none": None}
    running = await sent('extra_labels {"env":"dev"}', record)
    (request,) = running.requests
    assert (request.method, request.target) == ("POST", "/loki/api/v1/push")
    assert request.header("content-type") == "application/json"
    assert streams(request) == [
        {
            "stream": {"env": "dev"},
            "values": [
                [
                    str(TIME),
                    r'm="say \"hi\" \\" n=5 eq="a=b" nest="{\"a\"=>[1, nil]}" t=true none=',
                ]
            ],
        }
    ]


async def test_labels_leave_the_line():
    more = """
        line_format json
        remove_keys trace, $.k.x
        <label>
          host
          app-name $.k.app
          missing $.no.where
          number n
        </label>
    """
    running = await sent(more, {"host": 'h"1', "k": {"app": "a", "x": 1}, "trace": 1, "n": 5, "m": "text"})
    (stream,) = streams(running.requests[0])
    assert stream["stream"] == {"host": 'h\\"1', "app_name": "a"}
    assert json.loads(stream["values"][0][1]) == {"k": {}, "m": "text"}


async def test_streams_by_labels_in_order_of_time():
    async with Origin([ok(status="204 No Content")]) as origin:
        text = f"@type loki\nurl {origin.url('/base/')}\ndrop_single_key true\n<label>\na\n</label>\n" + BUFFER.format(
            keys="", extra=""
        )
        async with output(text) as running:
            events = [
                (30, {"a": "x", "m": "3"}),
                (10, {"a": "x", "m": "1"}),
                (20, {"a": "y", "m": 2}),
                (10, {"a": "x", "m": "1b"}),
            ]
            running.context.root.emit("t", Batch.of(events))
            await running.idle()
    assert origin.requests[0].target == "/base/loki/api/v1/push"
    assert streams(origin.requests[0]) == [
        {"stream": {"a": "x"}, "values": [["10", "1"], ["10", "1b"], ["30", "3"]]},
        {"stream": {"a": "y"}, "values": [["20", "2"]]},
    ]


async def test_kubernetes_labels_win_over_nothing_but_extra_ones():
    more = 'extract_kubernetes_labels true\nremove_keys kubernetes\nextra_labels {"app_io_name":"extra"}'
    record = {"kubernetes": {"labels": {"app.io/name": "x", "tier-1": "web"}}, "m": "text"}
    running = await sent(more, record)
    (stream,) = streams(running.requests[0])
    assert stream == {"stream": {"app_io_name": "extra", "tier_1": "web"}, "values": [[str(TIME), "m=text"]]}


async def test_tenant_auth_compression_and_thread():
    more = 'tenant t-${tag}\nusername u\npassword p\ncompress gzip\ncustom_headers {"X-A":"b"}'
    running = await sent(more, {"m": 1}, keys="tag", extra="flush_thread_count 2")
    (request,) = running.requests
    assert request.header("x-scope-orgid") == "t-app"
    assert request.header("authorization") == "Basic " + base64.b64encode(b"u:p").decode()
    assert request.header("x-a") == "b"
    assert streams(request)[0]["stream"]["fluentd_thread"] in {"flush_thread_0", "flush_thread_1"}
    running = await sent("include_thread_label false", {"m": 1}, extra="flush_thread_count 2")
    assert streams(running.requests[0])[0]["stream"] == {}


async def test_a_bearer_token(tmp_path):
    file = tmp_path / "token"
    file.write_text("secret\n")
    running = await sent(f"bearer_token_file {file}", {"m": 1})
    assert running.requests[0].header("authorization") == "Bearer secret"
    assert "secret" not in running.log.getvalue()


@pytest.mark.parametrize(
    "reply",
    [
        ok(b"slow", status="429 Too Many Requests"),
        ok(status="500 Oops"),
        Reply(b"", reset=True),
        Reply(b"HTTP/1.1 2", close=True),
    ],
)
async def test_what_is_tried_again(reply):
    running = await sent("", {"m": 1}, replies=[reply])
    assert len(running.requests) >= 2
    assert running.counted["delivered"] == 1


async def test_lines_out_of_order_are_told_of_and_done_with():
    body = b"entry with timestamp 2020 ignored, reason: 'entry out of order' for stream: {a=\"b\"}, total ignored: 1 out of 2"
    running = await sent("", {"m": 1}, {"m": 2}, replies=[ok(body, status="400 Bad Request")])
    assert len(running.requests) == 1
    assert running.counted["delivered"] == 2
    assert running.stats["ignored"] == 1
    assert "out of order" in running.log.getvalue()


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "413 Too Large", "302 Found"])
async def test_other_refusals_give_the_chunk_up(status):
    running = await sent("", {"m": 1}, replies=[ok(b"at least one label pair is required per stream", status=status)])
    assert running.counted["dropped"]["backed_up"] == 1


async def test_every_record_is_a_line_or_told_of():
    for line_format in ("json", "key_value"):
        running = await sent(f"line_format {line_format}\ndrop_single_key true", *RECORDS)
        count = sum(len(stream["values"]) for stream in streams(running.requests[0]))
        assert count + len(running.errors.records) == len(RECORDS)


async def test_one_connection_for_each_lane():
    async with Origin([ok(status="204 No Content")]) as origin:
        text = f"@type loki\nurl {origin.url()}\n" + BUFFER.format(keys="", extra="").replace("interval", "immediate")
        async with output(text) as running:
            for number in range(10):
                await running.emit("t", {"n": number})
                await running.idle()
            assert running.plugin.stats()["connections"]["opened"] == 1
    assert origin.accepts == 1


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("url ftp://x", "HTTP/HTTPS scheme"),
        ("bearer_token_file /nowhere", "not found"),
        ("cert /a", "set together"),
        ("ca_cert /nowhere", "does not exist"),
        ("tenant ${tag}", '"tag" is not a chunk key'),
        ("remove_keys $.a[", "not an index"),
        ("<label>\na $.b[\n</label>", "not an index"),
        ('custom_headers {"Content-Length":"1"}', "cannot be sent"),
        ("compress zstd", '"compress"'),
        ("min_version TLS9", "unknown TLS version"),
    ],
)
def test_check(more, told):
    errors, _ = problems_of("output", f"<match **>\n@type loki\n{more}\n</match>")
    assert any(told in error for error in errors), errors


def test_contract():
    asyncio.run(check_output("<match **>\n@type loki\nurl http://127.0.0.1:1\n</match>"))


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def server_tls(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("trust", ["ca_cert {}", "insecure_tls true"])
async def test_tls(authority, tmp_path, trust):
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    async with Origin([ok()], tls=server_tls(authority)) as origin:
        text = f"@type loki\nurl {origin.url()}\n{trust.format(file)}\n" + BUFFER.format(keys="", extra="")
        async with output(text) as running:
            await running.emit("t", {"m": 1})
            await running.idle()
            assert running.figures()["retry_count"] == 0
    assert len(origin.requests) == 1


async def test_a_certificate_that_nobody_vouches_for_is_refused(authority):
    async with Origin([ok()], tls=server_tls(authority)) as origin:
        text = f"@type loki\nurl {origin.url()}\n" + BUFFER.format(keys="", extra="retry_max_times 1")
        async with output(text) as running:
            await running.emit("t", {"m": 1})
            await running.idle()
            assert running.figures()["dropped"]["backed_up"] == 1
            assert "set the CA certificate path" in running.log.getvalue()
    assert origin.requests == []


async def test_a_proxy_of_the_environment(monkeypatch):
    async with Origin([ok()]) as proxy:
        monkeypatch.setenv("http_proxy", f"http://u:p@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        text = "@type loki\nurl http://loki.example\n" + BUFFER.format(keys="", extra="")
        async with output(text) as running:
            await running.emit("t", {"m": 1})
            await running.idle()
    assert proxy.requests[0].target == "http://loki.example/loki/api/v1/push"
    assert proxy.requests[0].header("proxy-authorization") == "Basic " + base64.b64encode(b"u:p").decode()


def test_what_is_given_and_empty_is_not_given():
    text = "<match **>\n@type loki\nusername \ncert \nkey \nbearer_token_file \n</match>"
    assert problems_of("output", text.replace(" \n", ' ""\n'))[0] == []
