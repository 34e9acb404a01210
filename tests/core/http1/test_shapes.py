"""Heads that differ in the size of their body only: known by their shape, and the same as if they were parsed."""

import pytest

from headrace.core.http1.request import HeadRules, parse_request_head
from headrace.errors import HttpError

HEAD = b"POST /a?b=c HTTP/1.%b\r\nHost: h:8080\r\n%bX-A: Content-Length: 9\r\n%b\r\n"


def seen(head):
    fields = head.fields
    names = ("method", "target", "version", "host", "raw", "length", "header_start")
    about = ("text", "low", "host", "content_length", "chunked", "keep_alive", "expect_continue")
    return [getattr(head, name) for name in names], [getattr(fields, name) for name in about], head.headers()


@pytest.mark.parametrize("minor", [b"1", b"0"])
@pytest.mark.parametrize("line", [b"Content-Length: %b\r\n", b"content-length:%b\r\n", b"CONTENT-LENGTH: %b\r\n"])
@pytest.mark.parametrize(
    "more", [b"", b"Connection: keep-alive\r\n", b"Expect: 100-continue\r\n", b"bad_header: x\r\n"]
)
def test_a_head_of_a_known_shape_is_as_one_that_is_parsed(minor, line, more):
    rules = HeadRules()
    for number in (b"5", b"0", b"17", b"17", b"00", b"999999999999999", b"1234567890123456", b"3"):
        raw = HEAD % (minor, line % number, more)
        head = parse_request_head(b"ab" + raw + b"body", 2, rules)
        assert seen(head) == seen(parse_request_head(raw, 0, HeadRules()))
        assert head.content_length == int(number)


def test_a_known_shape_is_not_parsed_again(monkeypatch):
    rules = HeadRules()
    first = parse_request_head(HEAD % (b"1", b"Content-Length: 1\r\n", b""), 0, rules)
    monkeypatch.setattr("headrace.core.http1.request.read_fields", None)
    for number in range(2000):
        head = parse_request_head(HEAD % (b"1", b"Content-Length: %d\r\n" % number, b""), 0, rules)
        assert head.content_length == number
        assert head.shape is first.shape
    assert len(rules.heads) <= 128


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: \r\n",
        b"Content-Length: 5x\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +5\r\n",
    ],
)
def test_what_is_refused_stays_refused(lines):
    rules = HeadRules()
    parse_request_head(HEAD % (b"1", b"Content-Length: 1\r\n", b""), 0, rules)
    for _ in range(2):
        with pytest.raises(HttpError):
            parse_request_head(HEAD % (b"1", lines, b""), 0, rules)
