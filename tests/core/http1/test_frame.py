"""What leaves: heads and chunks, and that nothing in them can begin another line."""

from __future__ import annotations

import email.utils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.http1 import frame
from headrace.core.http1.body import ChunkedDecoder
from headrace.core.http1.parse import RequestParser, ResponseParser

TOKEN = st.from_regex(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}", fullmatch=True)
VALUE = st.binary(max_size=40)


class TestRefusal:
    """O20: CR, LF and NUL never reach the wire, and nothing is cut short."""

    @pytest.mark.parametrize("value", [b"a\r\nB: c", b"a\nB: c", b"a\r", b"a\x00b", b"\n"])
    def test_values(self, value):
        for encode in (
            lambda: frame.response_head(200, [(b"A", value)]),
            lambda: frame.response_head(302, [(b"Location", b"/" + value)]),
            lambda: frame.response_head(200, [], reason=value),
            lambda: frame.request_head(b"GET", b"/", [(b"A", value)]),
            lambda: frame.last_chunk([(b"A", value)]),
            lambda: frame.Prefix(200, [(b"A", value)]),
        ):
            with pytest.raises(frame.FieldError):
                encode()

    @pytest.mark.parametrize("name", [b"X\n", b"X: y", b"", b"a b", b"X\r\nY", b"a\x00"])
    def test_names(self, name):
        with pytest.raises(frame.FieldError):
            frame.encode_fields([(name, b"v")])

    @pytest.mark.parametrize("target", [b"/ HTTP/1.1\r\nB: c", b"/a b", b"", b"/\x00", b"/\r"])
    def test_request_lines(self, target):
        with pytest.raises(frame.FieldError):
            frame.request_head(b"GET", target, [])
        with pytest.raises(frame.FieldError):
            frame.request_head(b"GET /x", b"/", [])

    @given(st.lists(st.tuples(st.one_of(TOKEN, VALUE), VALUE), max_size=5))
    def test_as_many_lines_as_fields(self, fields):
        try:
            block = frame.encode_fields(fields)
        except frame.FieldError:
            assert any(set(value) & set(b"\r\n\x00") for _, value in fields) or any(
                not frame._NAME.fullmatch(name) for name, _ in fields
            )
            return
        assert block.count(b"\r") == block.count(b"\n") == block.count(b"\r\n") == len(fields)


class TestRoundTrips:
    FIELDS = st.lists(
        st.tuples(
            st.from_regex(rb"X-[A-Za-z0-9]{1,8}", fullmatch=True),
            st.binary(max_size=30).map(lambda v: v.translate(None, b"\r\n\x00").strip(b" \t")),
        ),
        max_size=6,
    )

    @given(FIELDS)
    def test_request(self, fields):
        parser = RequestParser()
        data = frame.request_head(b"GET", b"/a?b", [(b"Host", b"a"), *fields])
        head = parser.feed(data)[0]
        assert parser.error is None
        assert head.headers() == [(b"Host", b"a"), *fields]
        assert head.raw == data

    @given(FIELDS, st.sampled_from([200, 404, 299]))
    def test_response(self, fields, status):
        parser = ResponseParser(b"HEAD")
        head = parser.feed(frame.response_head(status, fields))[0]
        assert (head.status, head.headers()) == (status, fields)

    @given(st.lists(st.binary(max_size=50)), FIELDS)
    def test_chunked(self, pieces, trailers):
        trailers = [(name, bytes(b for b in value if b >= 32 and b != 127)) for name, value in trailers]
        trailers = [(name, value.strip(b" ")) for name, value in trailers]
        data = b"".join(map(frame.chunk, pieces)) + frame.last_chunk(trailers)
        decoder = ChunkedDecoder()
        out: list[bytes] = []
        assert decoder.decode(data + b"next", 0, out) == len(data)
        assert decoder.done
        assert b"".join(out) == b"".join(pieces)
        assert decoder.trailers == trailers


class TestHeads:
    def test_status_lines(self):
        assert frame.status_line(200) == b"HTTP/1.1 200 OK\r\n"
        assert frame.status_line(302) == b"HTTP/1.1 302 Moved Temporarily\r\n"
        assert frame.status_line(299) == b"HTTP/1.1 299 \r\n"
        assert frame.status_line(200, b"Fine") == b"HTTP/1.1 200 Fine\r\n"

    @pytest.mark.parametrize("second", [0, 951_782_400, 1_700_000_000, 4_102_444_799])
    def test_dates(self, second):
        assert frame.http_date(second).decode() == email.utils.formatdate(second, usegmt=True)

    def test_prefix_changes_with_the_second_only(self):
        prefix = frame.Prefix(200, [(b"Server", b"x")])
        first = prefix.at(1000)
        assert first == b"HTTP/1.1 200 OK\r\nServer: x\r\nDate: Thu, 01 Jan 1970 00:16:40 GMT\r\n"
        assert prefix.at(1000) is first
        assert prefix.at(1001) != first
