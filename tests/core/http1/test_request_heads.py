"""Request heads: limits, dropped lines, lookups, everything that smuggles."""

from __future__ import annotations

import pytest
from http1_rig import Rig, read_answers, say

from headrace.core.http1.parse import RequestParser
from headrace.core.http1.request import HeadRules, check_target, parse_request_head
from headrace.errors import HttpError


def parse(data, **rules):
    head = parse_request_head(data, 0, HeadRules(**rules))
    assert head is not None
    return head


def fault(data, **rules):
    """The fault of the bytes: the same whole and byte by byte."""
    outcomes = []
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        parser = RequestParser(HeadRules(**rules))
        for piece in pieces:
            parser.feed(piece)
        outcomes.append(parser.error and parser.error.status)
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def with_fields(*lines, target=b"/", end=b"\r\n"):
    return end.join([b"GET %b HTTP/1.1" % target, b"Host: a", *lines, b"", b""])


class TestFields:
    def test_lookup(self):
        head = parse(with_fields(b"X-A:  1 \t", b"x-a: 2", b"Cookie: a=1", b"cookie: b=2", b"Empty:"))
        assert head.header(b"x-a") == b"1, 2"
        assert head.header_all(b"x-a") == [b"1", b"2"]
        assert head.header(b"cookie") == b"a=1; b=2"
        assert head.header(b"empty") == b""
        assert head.header(b"x") is None
        assert head.headers() == [
            (b"Host", b"a"),
            (b"X-A", b"1"),
            (b"x-a", b"2"),
            (b"Cookie", b"a=1"),
            (b"cookie", b"b=2"),
            (b"Empty", b""),
        ]

    def test_raw_is_what_came(self):
        data = b"GET  /a?b  HTTP/1.1 \r\nhOST: A\nFo(o: x\r\n\r\n"
        head = parse(data + b"more")
        assert head.raw == data
        assert head.raw[head.header_start :].startswith(b"hOST")
        assert head.request_line == b"GET  /a?b  HTTP/1.1 "
        assert (head.method, head.target, head.length) == (b"GET", b"/a?b", len(data))

    @pytest.mark.parametrize("line", [b"Fo(o: x", b"Foo", b"F\xff: x", b"Under_score: x", b'"q": x'])
    def test_invalid_names_are_dropped_and_never_passed_on(self, line):
        head = parse(with_fields(b"A: 1", line, b"B: 2"))
        assert head.headers() == [(b"Host", b"a"), (b"A", b"1"), (b"B", b"2")]
        assert line in head.raw
        if b"_" not in line:
            assert fault(with_fields(line), ignore_invalid=False) == 400

    def test_underscores(self):
        assert parse(with_fields(b"A_b: 1"), underscores=True).header(b"a_b") == b"1"
        assert parse(with_fields(b"Content_Length: 5")).content_length is None
        assert parse(with_fields(b"Content_Length: 5"), underscores=True).content_length is None

    def test_lines_seen_before_mean_the_same(self):
        rules = HeadRules()
        one = parse_request_head(with_fields(b"A: 1", target=b"/1"), 0, rules)
        two = parse_request_head(b"xx" + with_fields(b"A: 1", target=b"/2") + b"yy", 2, rules)
        old = parse_request_head(with_fields(b"A: 1").replace(b"1.1", b"1.0"), 0, rules)
        assert one is not None
        assert two is not None
        assert old is not None
        assert one.fields is two.fields
        assert old.fields is not one.fields
        assert (one.keep_alive, old.keep_alive) == (True, False)
        assert two.raw == with_fields(b"A: 1", target=b"/2")

    def test_what_is_remembered_is_bounded(self):
        rules = HeadRules()
        for number in range(1000):
            parse_request_head(with_fields(b"A: %d" % number), 0, rules)
        assert 0 < len(rules.seen) <= 128
        assert 0 < len(rules.heads) <= 128
        rules.seen.clear()
        rules.heads.clear()
        parse_request_head(with_fields(b"A: " + b"x" * 5000), 0, rules)
        assert not rules.seen
        assert not rules.heads

    def test_a_head_seen_before_is_the_same_head(self):
        rules = HeadRules()
        one = parse_request_head(with_fields(), 0, rules)
        assert parse_request_head(b"xx" + with_fields() + b"yy", 2, rules) is one
        assert parse_request_head(with_fields()[:-1], 0, rules) is None
        assert parse_request_head(b"\r\n" + with_fields(), 0, rules).length == len(with_fields()) + 2

    def test_absolute_form_wins(self):
        head = parse(b"GET http://b.example:81?x HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (head.host, head.target) == (b"b.example:81", b"/?x")

    def test_first_empty_line_ends_the_head_whatever_its_kind(self):
        data = b"GET / HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
        heads = [event.target for event in RequestParser().feed(data) if hasattr(event, "target")]
        assert heads == [b"/", b"/2"]


class TestSmuggling:
    """H01: each ends the connection with an error, and what follows is never a request."""

    FRAMINGS = (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 5\r\nContent-Length: 0",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Content-Length: +5",
        b"Content-Length: 5 5",
        b"Content-Length: 0x5",
        b"Content-Length: " + b"1" * 30,
        b"Transfer-Encoding:\r\n chunked",
        b"Content-Length:\r\n\t5",
        b"Transfer-Encoding: chunked\x0b",
        b"Transfer-Encoding: chunked\rX: y",
        b"Host: b",
    )

    @pytest.mark.parametrize("framing", FRAMINGS)
    async def test_refused(self, framing):
        data = b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\nhello"
        data += b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        rig = Rig()
        (status,) = read_answers(await say(rig, data), [])
        assert status in {"400", "501"}
        assert rig.ended
        assert rig.handler.seen == []

    async def test_chunked_in_http10(self):
        rig = Rig()
        await say(rig, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.0\r\n\r\n")
        assert read_answers(rig.output, []) == ["400"]

    def test_white_space_around_chunked_is_no_disguise(self):
        assert parse(with_fields(b"Transfer-Encoding: \tchunked\t ")).chunked


class TestChunkFraming:
    """H02 and H04: anything but CRLF and plain hex digits is refused, and so is too much that is no data."""

    BODIES = (
        b"5\nhello\r\n0\r\n\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"-1\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"7ffffffffffffff7\r\nhello",
        b"1" * 17 + b"\r\nhello",
        b"\r\n0\r\n\r\n",
        b"5;a\x00b\r\nhello\r\n0\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nA: b\nC: d\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"5;" + b"e" * 5000 + b"\r\nhello\r\n0\r\n\r\n",
        (b"1;" + b"e" * 4000 + b"\r\nx\r\n") * 5,
        b"0\r\n" + b"A: b\r\n" * 101 + b"\r\n",
        b"0\r\nA: " + b"b" * 9000 + b"\r\n\r\n",
    )

    @pytest.mark.parametrize("body", BODIES)
    def test_refused(self, body):
        assert fault(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body) == 400

    def test_extensions_and_trailers_within_bounds(self):
        parser = RequestParser()
        events = parser.feed(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'000000005;a=b;c="d"\r\nhello\r\n0 ;x\r\nA: 1 \r\nContent-Length: 7\r\n\r\n'
        )
        assert events[1] == b"hello"
        assert events[2].trailers == [(b"A", b"1")]
        assert parser.between


class TestLimits:
    """H07: where a head is too large, and that the fault names it."""

    def test_one_line_fits_one_buffer(self):
        for size, wanted in ((8192, None), (8193, 431)):
            line = b"Cookie: " + b"c" * (size - 10)
            assert len(line + b"\r\n") == size
            assert fault(with_fields(line)) == wanted
        for size, wanted in ((8192, None), (8193, 414)):
            target = b"/" + b"t" * (size - len(b"GET / HTTP/1.1\r\n"))
            assert fault(with_fields(target=target)) == wanted

    def test_a_line_that_never_ends(self):
        assert fault(b"GET /" + b"a" * 10_000) == 414
        assert fault(b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000) == 431

    def test_all_buffers(self):
        line = b"A: " + b"a" * 8000
        assert fault(with_fields(*[line] * 4)) is None
        assert fault(with_fields(*[line] * 5)) == 431
        assert fault(with_fields(*[line] * 2), large=(1, 8192)) == 431

    def test_number_of_lines(self):
        assert fault(with_fields(*[b"a:"] * 999)) is None
        assert fault(with_fields(*[b"a:"] * 1000)) == 431
        assert fault(with_fields(*[b"a:"] * 10), max_headers=10) == 431

    def test_the_fault_names_the_header(self):
        with pytest.raises(HttpError, match=r'"Cookie", more than 8192 bytes'):
            parse(with_fields(b"Cookie: " + b"c" * 9000))

    def test_empty_lines_before_a_request(self):
        assert fault(b"\r\n\n\r\n" + with_fields()) is None
        assert fault(b"\r\n" * 5000) == 400
        assert fault(b"\r\r\n" + with_fields()) == 400


class TestHost:
    @pytest.mark.parametrize(
        "host",
        [b"a.b", b"a.b.", b"a:80", b"a:", b"a_b", b"[::1]", b"[::1]:80", b"[v1.a:b]", b"xn--a", b"\xc3\xa9", b"a%20"],
    )
    def test_good(self, host):
        assert parse(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host).host == host

    @pytest.mark.parametrize(
        "host",
        [b".", b"a..b", b"a/b", b"a\\b", b"a:80:80", b"a:65536", b"a:1.2", b"[::1", b"[::1].", b"x[::1]", b"u@a", b""],
    )
    def test_bad(self, host):
        assert fault(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host) == 400
        assert fault(b"GET http://%b/ HTTP/1.1\r\nHost: a\r\n\r\n" % host) == (None if host == b"a/b" else 400)


class TestTarget:
    @pytest.mark.parametrize(
        "target", [b"/a/../b", b"/./a", b"/a/b/../../c", b"/%2e/a", b"/a?%zz", b"/a?/../../..", b"/..a"]
    )
    def test_good(self, target):
        check_target(target)

    @pytest.mark.parametrize(
        "target", [b"/..", b"/a/../..", b"/%2e%2e/a", b"/a%2f..%2F..", b"/%", b"/%4", b"/%00", b"/a#/%00/../.."]
    )
    def test_bad(self, target):
        if b"#" in target:
            check_target(target)
            return
        with pytest.raises(HttpError):
            check_target(target)
