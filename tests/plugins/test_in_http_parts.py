"""in_http's pure parts: bodies, compressed bodies, forms, CORS."""

import gzip
import json
import math
import zlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HttpError
from headrace.plugins.in_http.body import expand, json_records, msgpack_records, ndjson_records
from headrace.plugins.in_http.cors import Cors
from headrace.plugins.in_http.form import parse_multipart, parse_urlencoded


def status_of(function, *arguments):
    with pytest.raises(HttpError) as caught:
        function(*arguments)
    return caught.value.status


def test_json():
    assert json_records(b'{"a":1}') == [{"a": 1}]
    assert json_records(b'[{"a":1},{}]') == [{"a": 1}, {}]
    assert json_records(b"[]") == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a":1}{"b":2}', b"5", b'[{"a":1},2]', b'"x"', b"[[]]", b"[" * 100000, b"null"]
)
def test_wrong_json_is_refused_whole(body):
    assert status_of(json_records, body) == 400


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40, 1700000000123456789])
def test_no_integer_becomes_a_float(number):
    (record,) = json_records(b'{"n":%d}' % number)
    assert record["n"] == number
    assert isinstance(record["n"], int)


@given(st.integers())
def test_integers_stay(number):
    assert json_records(json.dumps([{"n": number, "m": "x"}]).encode()) == [{"n": number, "m": "x"}]


def test_what_json_cannot_say_is_kept():
    assert math.isnan(json_records(b'{"a":NaN}')[0]["a"])
    assert json_records(b'{"a":"\xff\xfe"}') == [{"a": "\udcff\udcfe"}]
    assert json_records(b'{"a":"x\\ud800y\\ud83d\\ude00\xff"}') == [{"a": "x\ufffdy\U0001f600\udcff"}]


def test_ndjson():
    assert ndjson_records(b'{"a":1}\r\n\n  \n{"b":2}\n[{"c":3}]') == [{"a": 1}, {"b": 2}, {"c": 3}]
    with pytest.raises(HttpError, match="line 2"):
        ndjson_records(b'{"a":1}\n{bad\n{"c":2}')


def test_msgpack():
    a, b = msgpack.packb({"a": 1}), msgpack.packb({b"b": b"\xff"})
    assert msgpack_records(a) == [{"a": 1}]
    assert msgpack_records(a + b) == [{"a": 1}, {b"b": b"\xff"}]
    assert msgpack_records(msgpack.packb([{"a": 1}, {}])) == [{"a": 1}, {}]
    for wrong in (a[:-1], b"\xc1", msgpack.packb(5), msgpack.packb([5]), a + b"\x93"):
        assert status_of(msgpack_records, wrong) == 400
    assert msgpack_records(b"") == []


def test_gzip_bodies():
    assert expand(b"gzip", gzip.compress(b"abc"), 3) == b"abc"
    assert expand(b" X-GZIP ", gzip.compress(b"abc") + gzip.compress(b"def") + b"\0\0", 6) == b"abcdef"
    assert status_of(expand, b"gzip", gzip.compress(b"abcd"), 3) == 413
    assert status_of(expand, b"gzip", gzip.compress(b"ab") * 1000, 1999) == 413
    assert status_of(expand, b"gzip", gzip.compress(bytes(1 << 24)), 1 << 20) == 413
    for wrong in (b"", b"plain", gzip.compress(b"abc")[:-1], gzip.compress(b"abc") + b"junk"):
        assert status_of(expand, b"gzip", wrong, 100) == 400


def test_deflate_bodies():
    packer = zlib.compressobj(wbits=-15)
    bare = packer.compress(b"abc") + packer.flush()
    assert expand(b"deflate", zlib.compress(b"abc"), 3) == b"abc"
    assert expand(b"deflate", bare, 3) == b"abc"
    assert status_of(expand, b"deflate", zlib.compress(b"abc") + b"x", 100) == 400
    assert status_of(expand, b"deflate", b"", 100) == 400


def test_other_codings():
    assert expand(b"identity", b"x", 0) == b"x"
    assert status_of(expand, b"br", b"x", 100) == 415


def test_urlencoded_splits_at_ampersands_only():
    assert parse_urlencoded(b'json={"m":"a; b"}') == {b"json": b'{"m":"a; b"}'}
    assert parse_urlencoded(b"json=%7B%22m%22%3A%22a%26b%22%7D&time=1&&x") == {
        b"json": b'{"m":"a&b"}',
        b"time": b"1",
        b"x": b"",
    }
    assert parse_urlencoded(b"a=1&a=2") == {b"a": b"2"}
    assert parse_urlencoded(b"a+b=c+d%2B%zz") == {b"a b": b"c d+%zz"}
    assert parse_urlencoded(b"") == {}


def test_multipart():
    body = (
        b'preamble\r\n--x y\r\nContent-Disposition: form-data; name="json"\r\n\r\n{"a":"+; b"}\r\n'
        b'--x y\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; filename="name=z"; name=time\r\n\r\n\r\n5\r\n--x y--\r\n'
    )
    assert parse_multipart(body, b'multipart/form-data; boundary="x y"') == {
        b"json": b'{"a":"+; b"}',
        b"time": b"\r\n5",
    }
    assert status_of(parse_multipart, body, b"multipart/form-data") == 400
    assert status_of(parse_multipart, body[:-8], b'multipart/form-data; boundary="x y"') == 400
    assert status_of(parse_multipart, b"--x\r\nno end\r\n--x--", b"multipart/form-data; boundary=x") == 400


def test_cors():
    cors = Cors(["http://a.example", "https://*.b.example"], credentials=True)
    assert b"Access-Control-Allow-Origin: http://a.example\r\n" in cors.fields(b"http://a.example")
    assert b"Allow-Credentials: true" in cors.fields(b"https://x.b.example")
    assert cors.fields(b"https://evil.example") is None
    assert cors.fields(b"https://.b.exampl") is None
    assert cors.fields(None) == b""
    assert cors.preflight(b"http://a.example", b"POST", b"x-y").startswith(b"Access-Control-Allow-Methods: POST\r\n")
    assert cors.preflight(b"http://a.example", b"PUT", None) is None
    assert cors.preflight(None, b"POST", None) is None
    everyone = Cors(["*"], credentials=False)
    assert everyone.fields(b"http://z") == b"Access-Control-Allow-Origin: *\r\n"
    assert everyone.preflight(b"http://z", b"POST", None)
