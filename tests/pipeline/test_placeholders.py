"""Chunk keys and placeholders, record accessors, time zones."""

from __future__ import annotations

import pytest

from headrace.conf.params import string
from headrace.pipeline.accessor import Accessor, parse
from headrace.pipeline.placeholders import ChunkKeys, Meta
from headrace.pipeline.timezone import strftime, zone
from headrace.testing.pipelines import Kit, Script

CHUNK = bytes(range(16))
T = 1_700_000_000  # 2023-11-14 22:13:20 UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/${tag}/x", "/a.b.c/x"),
        ("${tag[0]}-${tag[1]}-${tag[-1]}-${tag[9]}", "a-b-c-"),
        ("%Y%m%d_%H%M", "20231114_2200"),
        ("%L %N %:z %%", "000 000000000 +00:00 %"),
        ("${key}|${$.n.f}|${none}", 'v|{"x":[1,true,null]}|'),
        ("${chunk_id}", CHUNK.hex()),
        ("${other} ${tag", "${other} ${tag"),
    ],
)
def test_extract(text, expected):
    keys = ChunkKeys(["tag", "time", "key", "$.n.f", "none"], timekey=3600, use_utc=True)
    _group, meta = keys.of("a.b.c", T * 10**9, {"key": "v", "n": {"f": {"x": [1, True, None]}}})
    assert keys.extract(text, meta, CHUNK) == expected


def test_values_are_not_read_as_placeholders():
    keys = ChunkKeys(["tag", "a"])
    _group, meta = keys.of("${a}%Y", 0, {"a": "${tag}"})
    assert keys.extract("${tag} ${a}", meta, CHUNK) == "${a}%Y ${tag}"


def test_slices_follow_the_zone():
    keys = ChunkKeys(["time"], timekey=86400, timezone="+0900")
    start = keys.slice_of(T * 10**9)
    assert strftime(start, keys.zone, "%F %T %z") == "2023-11-15 00:00:00 +0900"
    keys = ChunkKeys(["time"], timekey=86400, timezone="Asia/Tokyo")
    assert keys.slice_of(T * 10**9) == start
    assert keys.extract("%d", Meta(timekey=start), CHUNK) == "15"


@pytest.mark.parametrize("text", ["PST", "Nowhere/Land", "+99", "utc"])
def test_zones_that_are_none(text):
    with pytest.raises(ValueError, match="timezone"):
        zone(text)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a b"], "character"),
        (["$['a']"], "bracket"),
        (["time"], "timekey"),
        (["$."], "key"),
        (["$.a[x]"], "bracket"),
    ],
)
def test_chunk_keys_that_cannot_be(keys, message):
    with pytest.raises(ValueError, match=message):
        ChunkKeys(keys)


def test_missing_placeholders():
    keys = ChunkKeys(["tag", "time", "k"], timekey=60)
    assert list(keys.missing_placeholders("${tag} ${k} %M")) == []
    assert len(list(keys.missing_placeholders("x"))) == 3
    assert "%M" in next(iter(ChunkKeys(["time"], timekey=60).missing_placeholders("%H")), "%M")
    assert list(ChunkKeys(["time"], timekey=3600).missing_placeholders("%Y%m%d%H")) == []
    assert list(ChunkKeys(["time"], timekey=3600).missing_placeholders("%Y%m%d")) != []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("$.a.b", ("a", "b")),
        ("$.a[0][-1].b", ("a", 0, -1, "b")),
        ("$['a.b'][0][\"c\"]", ("a.b", 0, "c")),
    ],
)
def test_accessors(text, path):
    assert parse(text) == path


@pytest.mark.parametrize("text", ["$.", "$.a[", "$.a b", "$['a", "$['a\"]", "$[]"])
def test_accessors_that_cannot_be_read(text):
    with pytest.raises(ValueError, match=r"\$"):
        parse(text)


def test_accessors_read_set_and_delete():
    record = {"a": {"b": [1, {"c": 2}]}}
    accessor = Accessor("$.a.b[1].c")
    assert accessor.get(record) == 2
    accessor.set(record, 3)
    assert accessor.delete(record) == 3
    assert accessor.delete(record) is None
    assert record == {"a": {"b": [1, {}]}}
    assert Accessor("$.x.y").get(record) is None
    Accessor("$.x.y").set(record, 1)
    assert Accessor("$.a.b[0]").delete(record) == 1
    assert record == {"a": {"b": [{}]}}


class Endpoint(Script):
    name = "endpoint"
    endpoint = string(placeholders=True, doc="Where to")


@pytest.mark.parametrize(
    ("endpoint", "argument", "named"),
    [
        ("http://h/${tag}", "", '"tag" is not a chunk key'),
        ("http://h/${tag[1]}", "key", '"tag" is not a chunk key'),
        ("http://h/${key}", "tag", '"key" is not a chunk key'),
        ("http://h/${$.a.b}", "tag", '"$.a.b" is not a chunk key'),
        ("http://h/%Y%m%d", "tag", '"time" is not a chunk key'),
        ("http://h/${tag}/${chunk_id}/a%20b/%d0%b0", "tag", None),
        ("http://h/${key}/x", "tag,key", None),
    ],
)
def test_an_unresolvable_placeholder_is_an_error_of_the_configuration(endpoint, argument, named):
    kit = Kit(
        f"<match **>\n@type endpoint\nendpoint {endpoint}\n<buffer {argument}>\n</buffer>\n</match>", plugins=[Endpoint]
    )
    if named is None:
        assert kit.errors == []
    else:
        (error,) = kit.errors
        assert named in error
        assert "test.conf:3" in error
        assert "endpoint" in error


def test_a_secondary_has_the_keys_of_its_primary():
    kit = Kit(
        "<match **>\n@type script\n<buffer a>\n</buffer>\n<secondary>\n@type endpoint\nendpoint http://${b}\n"
        "</secondary>\n</match>",
        plugins=[Endpoint],
    )
    (error,) = kit.errors
    assert '"b" is not a chunk key' in error
