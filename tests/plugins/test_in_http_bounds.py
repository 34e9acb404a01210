"""Bodies that would become very many objects, and bodies that only look so."""

from __future__ import annotations

import gzip
import json

import msgpack
import pytest
import zstandard

from headrace.errors import HttpError
from headrace.plugins.in_http.body import expand, json_records, msgpack_records, ndjson_records
from headrace.plugins.in_http.bounds import FREE, OBJECTS, VALUES

LIMIT = 256 << 20


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({f"k{number}": 1 for number in range(VALUES * 2)}).encode(),
        b"[" + json.dumps({f"k{number}": [] for number in range(VALUES * 2)}).encode() + b",{}]",
        json.dumps({"a": list(range(VALUES * 2))}).encode(),
        b"[" + b",".join([b"{}"] * (OBJECTS + 1)) + b"]",
        b'{"a":' + b"[" * (OBJECTS * 2),
    ],
    ids=["keys", "keys in an array", "elements", "records", "depth"],
)
def test_a_body_that_holds_too_much_is_refused(body):
    for decode in (json_records, ndjson_records):
        with pytest.raises(HttpError) as caught:
            decode(body)
        assert caught.value.status == 413


def test_msgpack_that_holds_too_much_is_refused():
    keys = msgpack.packb({f"k{number}": 1 for number in range(VALUES * 2)})
    elements = msgpack.packb({"a": [1] * (OBJECTS * 2)})
    for body in (keys, elements):
        with pytest.raises(HttpError, match="exceeds") as caught:
            msgpack_records(body)
        assert caught.value.status == 400
    many = [{"message": "x" * 30, "n": number} for number in range(30_000)]
    assert msgpack_records(msgpack.packb(many)) == many


@pytest.mark.parametrize(
    "value",
    [
        {"message": "1," * VALUES * 2},
        {"message": '"\\,{' * VALUES},
        [{"message": "1,2,3", "n": number, "tags": ["a", "b"]} for number in range(30_000)],
    ],
    ids=["commas in a text", "quotes and commas in a text", "many records"],
)
def test_a_body_of_texts_and_records_is_taken(value):
    records = json_records(json.dumps(value).encode())
    assert records == (value if isinstance(value, list) else [value])


def test_expansion():
    line = b'{"message":"GET / HTTP/1.1","code":200,"n":%d}\n'
    logs = b"".join(line % number for number in range(400_000))
    assert len(logs) > FREE
    assert expand(b"gzip", gzip.compress(logs), LIMIT) == logs
    alike = line % 1 * (FREE // len(line))
    assert expand(b"gzip", gzip.compress(alike), LIMIT) == alike
    for bomb in (gzip.compress(bytes(FREE * 2)), gzip.compress(bytes(FREE)) * 2):
        with pytest.raises(HttpError, match="200 times") as caught:
            expand(b"gzip", bomb, LIMIT)
        assert caught.value.status == 413


def test_expansion_of_zstd():
    compress = zstandard.ZstdCompressor().compress
    line = b'{"message":"GET / HTTP/1.1","code":200,"n":%d}\n'
    logs = b"".join(line % number for number in range(20_000))
    assert expand(b"zstd", compress(logs), LIMIT) == logs
    assert expand(b"ZSTD", compress(logs) + compress(b"more"), LIMIT) == logs + b"more"
    with pytest.raises(HttpError, match="200 times") as caught:
        expand(b"zstd", compress(bytes(FREE * 2)), LIMIT)
    assert caught.value.status == 413
    with pytest.raises(HttpError, match="more than 1000 bytes") as caught:
        expand(b"zstd", compress(logs), 1000)
    assert caught.value.status == 413
    whole = compress(logs)
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"no zstd at all", whole[:40] + bytes(20) + whole[60:]):
        with pytest.raises(HttpError) as caught:
            expand(b"zstd", damaged, LIMIT)
        assert caught.value.status == 400
