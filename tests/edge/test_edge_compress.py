"""brotli and zstd: what is compressed, and what is not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import brotli
import pytest
import zstandard

from headrace.errors import ConfError

sys.path.insert(0, str(Path(__file__).parent / "upstream"))
from upstream_rig import origin, ours  # noqa: F401 - fixtures

TEXT = b"the quick brown fox " * 200
UNPACK = {"br": brotli.decompress, "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)}
NAMES = {"br": "brotli", "zstd": "zstd"}


@pytest.fixture(params=["br", "zstd"])
def coding(request):
    return request.param


async def start(ours, coding, more="", location="", http=""):  # noqa: F811
    name = NAMES[coding]
    (ours.folder / "a.html").write_bytes(TEXT)
    (ours.folder / "a.js").write_bytes(TEXT)
    (ours.folder / "small.html").write_bytes(b"x" * 19)
    text = f"root {ours.folder}; types {{ text/html html; text/js js; }} {name} on; {more} location / {{ {location} }}"
    await ours.start(text.replace("NAME", name), http)


async def test_a_file_is_compressed_for_who_takes_it(ours, coding):  # noqa: F811
    await start(ours, coding)
    plain = await ours.get("/a.html")
    assert plain.body == TEXT
    for accepted in (coding, f"gzip, {coding}", f"{coding};q=0.5", f"x,{coding.upper()} ;q=1"):
        answer = await ours.get("/a.html", f"Accept-Encoding: {accepted}")
        assert answer.headers["content-encoding"] == coding
        assert answer.headers["etag"] == "W/" + plain.headers["etag"]
        assert "accept-ranges" not in answer.headers
        assert UNPACK[coding](answer.body) == TEXT
        assert len(answer.body) < 200


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        ("/a.html", ()),
        ("/a.html", ("Accept-Encoding: gzip",)),
        ("/a.html", ("Accept-Encoding: CODING;q=0",)),
        ("/a.html", ("Accept-Encoding: xCODING",)),
        ("/a.html", ("Accept-Encoding: *",)),
        ("/a.js", ("Accept-Encoding: CODING",)),
        ("/small.html", ("Accept-Encoding: CODING",)),
    ],
)
async def test_what_is_not_compressed(ours, coding, target, fields):  # noqa: F811
    await start(ours, coding)
    answer = await ours.get(target, *(field.replace("CODING", coding) for field in fields))
    assert "content-encoding" not in answer.headers
    assert answer.body == (ours.folder / target[1:]).read_bytes()


async def test_settings(ours, coding):  # noqa: F811
    more = "NAME_types text/js; NAME_comp_level 9; NAME_min_length 4000; NAME_buffers 4 8k; gzip on; gzip_vary on;"
    await start(ours, coding, more)
    for target in ("/a.html", "/a.js"):
        answer = await ours.get(target, f"Accept-Encoding: gzip, {coding}")
        assert (answer.headers["content-encoding"], answer.headers["vary"]) == (coding, "Accept-Encoding")
        assert UNPACK[coding](answer.body) == TEXT
    assert (await ours.get("/a.html", "Accept-Encoding: gzip")).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in (await ours.get("/small.html", f"Accept-Encoding: {coding}")).headers


async def test_pieces_reach_the_client_as_they_come(ours, origin, coding):  # noqa: F811
    there = await origin([])
    del there
    await start(ours, coding, location="echo_flush; echo one; echo_flush; echo two;", more="default_type text/html;")
    answer = await ours.get("/x", f"Accept-Encoding: {coding}")
    assert UNPACK[coding](answer.body) == b"one\ntwo\n"


async def test_files_that_are_compressed_beforehand(ours, coding):  # noqa: F811
    suffix = {"br": "br", "zstd": "zst"}[coding]
    await start(ours, coding, "gzip_vary on;", "NAME_static on; location /always/ { NAME_static always; }")
    (ours.folder / f"a.html.{suffix}").write_bytes(b"packed")
    (ours.folder / "always").mkdir()
    (ours.folder / "always" / f"b.html.{suffix}").write_bytes(b"always")
    answer = await ours.get("/a.html", f"Accept-Encoding: {coding}")
    assert (answer.body, answer.headers["content-encoding"]) == (b"packed", coding)
    assert answer.headers["content-type"] == "text/html"
    answer = await ours.get("/a.html")
    assert (answer.body, answer.headers["vary"]) == (TEXT, "Accept-Encoding")
    assert (await ours.get("/always/b.html")).body == b"always"


async def test_head_says_what_get_would(ours, coding):  # noqa: F811
    await start(ours, coding)
    answer = await ours.get("/a.html", f"Accept-Encoding: {coding}", method="HEAD")
    assert (answer.headers["content-encoding"], answer.body) == (coding, b"")


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("brotli_comp_level 12;", "value must be between 0 and 11"),
        ("brotli_window 3k;", "value must be 1k, 2k"),
        ("brotli_static maybe;", 'invalid value "maybe"'),
        ("zstd_comp_level 0;", "value must be between 1 and 22"),
        ("zstd maybe;", 'invalid value "maybe" in "zstd" directive'),
    ],
)
async def test_configurations_that_cannot_work(ours, conf, message):  # noqa: F811
    with pytest.raises(ConfError, match=re.escape(message)):
        await ours.start(conf)


async def test_a_package_that_is_missing_is_named(ours, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "brotli", None)
    with pytest.raises(ConfError, match=r"headrace\[brotli\]"):
        await ours.start("brotli on;")
