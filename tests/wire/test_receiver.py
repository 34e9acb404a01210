"""The http source of a running process, by curl and by raw bytes."""

from __future__ import annotations

import gzip
import json

import msgpack
import pytest
import wire_rig as rig

from headrace.testing.origin import ok
from headrace.testing.plugin import free_port
from headrace.testing.process import wait_until

CONF = """\
<source>
  @type http
  port PORT
  bind 127.0.0.1
  body_size_limit 1m
  keepalive_timeout 10s
  EXTRA
</source>
<match **>
  @type stdout
  <format>
    @type json
  </format>
</match>
"""


class Receiver:
    def __init__(self, launcher, extra=""):
        self.port = free_port()
        conf = launcher.prefix / f"receiver{self.port}.conf"
        conf.write_text(CONF.replace("PORT", str(self.port)).replace("EXTRA", extra))
        self.process = launcher("headrace", "run", conf)
        rig.wait_listens(self.port, self.process)

    def url(self, path="/test.tag"):
        return f"http://127.0.0.1:{self.port}{path}"

    def records(self):
        return [json.loads(line) for line in self.process.output.splitlines() if line.startswith("{")]

    def wait_record(self, record):
        wait_until(lambda: record in self.records(), f"{record} in\n{self.process.output}")


@pytest.fixture(scope="module")
def receiver(shared):
    return Receiver(shared)


def body_file(shared, data):
    path = shared.prefix / "body"
    path.write_bytes(data)
    return f"@{path}"


JSON = "Content-Type: application/json"
NDJSON = "Content-Type: application/x-ndjson"
MSGPACK = "Content-Type: application/msgpack"

FORMS = {
    "json": ([JSON], b'{"as":"json","text":"a; b"}', [{"as": "json", "text": "a; b"}]),
    "json array": ([JSON], b'[{"as":"array 1"},{"as":"array 2"}]', [{"as": "array 1"}, {"as": "array 2"}]),
    "ndjson": ([NDJSON], b'{"as":"line 1"}\n{"as":"line 2"}\n', [{"as": "line 1"}, {"as": "line 2"}]),
    "msgpack": ([MSGPACK], msgpack.packb({"as": "msgpack", "n": 1 << 40}), [{"as": "msgpack", "n": 1 << 40}]),
    "form": ([], b'json={"as":"form; with a semicolon"}', [{"as": "form; with a semicolon"}]),
    "form escaped": ([], b"json=%7B%22as%22%3A%22escaped+form%22%7D", [{"as": "escaped form"}]),
    "gzip": ([JSON, "Content-Encoding: gzip"], gzip.compress(b'{"as":"gzip"}'), [{"as": "gzip"}]),
    "gzip members": (
        [NDJSON, "Content-Encoding: gzip"],
        gzip.compress(b'{"as":"member 1"}\n') + gzip.compress(b'{"as":"member 2"}\n'),
        [{"as": "member 1"}, {"as": "member 2"}],
    ),
    "chunked": ([JSON, "Transfer-Encoding: chunked"], b'{"as":"chunked"}', [{"as": "chunked"}]),
    "http 1.0": ([JSON], b'{"as":"http 1.0"}', [{"as": "http 1.0"}]),
    "expect": ([JSON, "Expect: 100-continue"], b'{"as":"expected"}', [{"as": "expected"}]),
}


@pytest.mark.parametrize(("fields", "body", "records"), FORMS.values(), ids=FORMS)
def test_forms(shared, receiver, request, fields, body, records):
    arguments = [part for field in fields for part in ("-H", field)]
    if "http 1.0" in request.node.name:
        arguments.append("--http1.0")
    assert rig.curl(*arguments, "--data-binary", body_file(shared, body), receiver.url()) == (200, b"")
    for record in records:
        receiver.wait_record(record)


def test_multipart(receiver):
    assert rig.curl("-F", 'json={"as":"multipart"}', receiver.url())[0] == 200
    receiver.wait_record({"as": "multipart"})


def test_several_requests_over_one_connection(receiver):
    urls = [receiver.url(path) for path in ("/a", "/b", "/c")]
    arguments = ["-H", JSON, "-d", '{"as":"one of three"}', *urls]
    assert rig.curl_output(*arguments, "-w", "%{num_connects} %{http_code},") == b"1 200,0 200,0 200,"
    wait_until(lambda: receiver.records().count({"as": "one of three"}) == 3, "three records")


WRONG = {
    "broken json": ([JSON], b'[{"never":"kept"},{"brok'),
    "broken line": ([NDJSON], b'{"never":"kept"}\n{"brok\n'),
    "broken msgpack": ([MSGPACK], msgpack.packb({"never": "kept"}) + b"\xc1"),
    "form without json": ([], b"jason={}"),
    "no gzip": ([JSON, "Content-Encoding: gzip"], b"plain"),
    "cut gzip": ([JSON, "Content-Encoding: gzip"], gzip.compress(b'{"never":"kept"}')[:-9]),
    "no record": ([JSON], b'"text"'),
}


@pytest.mark.parametrize(("fields", "body"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_400_with_the_reason(shared, receiver, fields, body):
    arguments = [part for field in fields for part in ("-H", field)]
    status, text = rig.curl(*arguments, "--data-binary", body_file(shared, body), receiver.url())
    assert status == 400
    assert text.startswith(b"400 Bad Request\n")
    assert len(text) > len(b"400 Bad Request\n")
    rig.curl("-H", JSON, "-d", '{"behind":"the wrong one"}', receiver.url())
    receiver.wait_record({"behind": "the wrong one"})
    assert not any("never" in record for record in receiver.records())


@pytest.mark.parametrize("fields", [[], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect:"]], ids=["length", "chunked", "at once"])  # fmt: skip
def test_too_large(shared, receiver, fields):
    body = body_file(shared, b'{"never":"' + b"x" * 1_100_000 + b'"}')
    assert rig.curl("-H", JSON, *fields, "--data-binary", body, receiver.url()) == (413, b"Too large")
    assert not any("never" in record for record in receiver.records())


def test_a_body_of_exactly_the_limit(shared, receiver):
    body = b'{"as":"' + b"l" * ((1 << 20) - 9) + b'"}'
    assert len(body) == 1 << 20
    assert rig.curl("-H", JSON, "--data-binary", body_file(shared, body), receiver.url())[0] == 200


def test_pipelined_posts_are_answered_in_order(receiver):
    def request(path, body):
        return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)  # fmt: skip

    with rig.Client(receiver.port) as client:
        client.send(request(b"/p", b'{"p":1}') + request(b"/p", b"wrong") + request(b"/p", b'{"p":2}'))
        assert [client.answer().status for _ in range(3)] == [200, 400, 200]
    receiver.wait_record({"p": 2})
    assert [record for record in receiver.records() if "p" in record] == [{"p": 1}, {"p": 2}]


def test_a_body_that_is_cut_is_no_event(receiver):
    with rig.Client(receiver.port) as client:
        client.send(
            b'POST /t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"never":1}', end=True
        )  # fmt: skip
        assert b" 200 " not in client.rest()
    assert not any("never" in record for record in receiver.records())


def test_answers_as_asked_for(shared):
    receiver = Receiver(shared, "use_204_response true\n  add_remote_addr true\n  add_http_headers true")
    status, body = rig.curl("-H", JSON, "-H", "X-Mine: yes", "-d", '{"k":1}', receiver.url())
    assert (status, body) == (204, b"")
    wait_until(receiver.records, "a record")
    (record,) = receiver.records()
    assert record["REMOTE_ADDR"] == "127.0.0.1"
    assert record["HTTP_X_MINE"] == "yes"


FULL = """\
<source>
  @type http
  port PORT
  bind 127.0.0.1
</source>
<match **>
  @type http
  endpoint http://127.0.0.1:TARGET/
  <buffer>
    @type memory
    flush_mode immediate
    chunk_limit_size 2k
    total_limit_size 4k
    overflow_action throw_exception
    retry_wait 0.1s
    retry_max_interval 0.2s
    retry_forever true
  </buffer>
</match>
"""


def test_a_full_buffer_is_503_and_recovery_is_automatic(prefix, port, headrace):
    with rig.origin([ok(status="503 Busy")]) as origin:
        text = FULL.replace("PORT", str(port)).replace("TARGET", str(origin.port))
        (prefix / "full.conf").write_text(text + rig.NO_LOG_EVENTS)
        process = headrace("headrace", "run", prefix / "full.conf")
        rig.wait_listens(port, process)
        taken = []

        def post(number):
            body = json.dumps({"n": number, "pad": "x" * 900}).encode()
            answer = rig.post(port, "/t", body)
            if answer.status == 200:
                taken.append(number)
            return answer

        answer = None
        for number in range(50):
            answer = post(number)
            if answer.status != 200:
                break
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert 1 <= len(taken) < 10
        # Nothing of a refused batch is kept, however small its first record.
        batch = json.dumps([{"never": 1}, {"pad": "x" * 1900}, {"pad": "x" * 1900}, {"pad": "x" * 1900}]).encode()
        assert rig.post(port, "/t", batch).status == 503
        refused = len(origin.requests)
        origin.script = [ok()]
        wait_until(lambda: post(100).status == 200, "room")

        def arrived():
            return [record.get("n") for record in rig.records(origin.requests[refused:])]

        wait_until(lambda: set(taken) <= set(arrived()), "every event that was taken")
        assert process.stop() == 0
        assert sorted(arrived()) == sorted(taken)
