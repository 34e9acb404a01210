"""Parts of answers that come by, or that filters change; judged by nginx with the same configuration."""

from __future__ import annotations

import re

import pytest

from headrace.edge.ranges import Parts, RangeFilter
from headrace.testing.origin import ok

BODY = b"0123456789"
SERVERS = {
    "force": "location / { proxy_pass http://O; proxy_force_ranges on; }",
    "cache": "location / { proxy_pass http://O; proxy_cache z; proxy_cache_valid 200 1m; }",
    "offset": "location / { proxy_pass http://O; proxy_cache z; proxy_cache_valid 200 1m; proxy_cache_max_range_offset 2; }",
    "uses": "location / { proxy_pass http://O; proxy_cache z; proxy_cache_valid 200 1m; proxy_cache_min_uses 2; }",
    "none": "location / { proxy_pass http://O; }",
    "lines": "location / { proxy_pass http://O; proxy_force_ranges on; add_trailer X-T v; }",
}
ASKED = [
    (which, fields)
    for which in SERVERS
    for fields in (
        ("Range: bytes=4-",),
        ("Range: bytes=1-1",),
        ("Range: bytes=-3",),
        ("Range: bytes=20-",),
        ("Range: bytes=x",),
        ("Range: bytes=2-", 'If-Range: "t"'),
        ("Range: bytes=2-", 'If-Range: "u"'),
        ("Range: bytes=2-", "If-Range: Mon, 28 Sep 1970 06:00:00 GMT"),
        (),
    )
]


def told(answer) -> tuple:
    kept = ("content-length", "content-range", "accept-ranges", "etag", "x-range", "transfer-encoding")
    body = answer.body if answer.status < 400 else b""
    return answer.status, {n: v for n, v in answer.headers.items() if n in kept and answer.status < 400}, body


@pytest.mark.parametrize(("which", "fields"), ASKED)
async def test_parts_are_what_nginx_sends(ours, nginx, origin, which, fields):
    def script(request):
        headers = ['ETag: "t"', "Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT", f"X-Range: {request.header('range')}"]
        if which != "force":
            headers.append("Accept-Ranges: bytes")
        return ok(BODY, headers=headers)

    there = await origin(script)
    answers = []
    for side in (ours, nginx):
        http = f"proxy_cache_path {side.folder}/cache keys_zone=z:1m;"
        await side.start(SERVERS[which].replace("O", f"127.0.0.1:{there.port}"), http)
        answers.append([told(await side.get("/", *fields)) for _ in range(2)])
    assert answers[0] == answers[1]


async def test_several_parts_of_an_answer_that_comes_by(ours, origin):
    there = await origin([ok(BODY * 10)])
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; proxy_force_ranges on; }}")
    answer = await ours.get("/", "Range: bytes=0-1,5-6,-1")
    boundary = re.fullmatch(r"multipart/byteranges; boundary=(\d+)", answer.headers["content-type"])[1].encode()
    assert int(answer.headers["content-length"]) == len(answer.body)
    parts = answer.body.split(b"\r\n--" + boundary)
    assert [part.rpartition(b"\r\n\r\n")[2] for part in parts[1:-1]] == [b"01", b"56", b"9"]
    assert b"Content-Range: bytes 99-99/100" in parts[3]
    whole = await ours.get("/", "Range: bytes=5-6,0-1")  # would have to be gone through twice
    assert (whole.status, whole.body) == (200, BODY * 10)


async def test_parts_behind_a_filter_that_keeps_the_length(ours, nginx, tmp_path):
    (tmp_path / "a.html").write_bytes(b"X123X" * 4)
    answers = []
    for side in (ours, nginx):
        await side.start(
            f"root {tmp_path}; charset A; source_charset B; default_type text/html; location /t {{ return 200 XX; }}",
            "charset_map B A { 58 59; }",
        )
        answers.append([told(await side.get("/a.html", f"Range: bytes={one}")) for one in ("3-5", "-1", "99-")])
    assert answers[0] == answers[1]
    assert answers[0][0][2] == b"3YY"


@pytest.mark.parametrize("cut", [1, 3, 7, 100])
def test_the_filter_does_not_care_how_bytes_come(cut):
    data = bytes(range(100))
    parts = Parts([(0, 2), (5, 9), (50, 100)], 100, b"text/plain")
    one = RangeFilter(parts)
    out = b"".join(one.body(None, data[at : at + cut], at + cut >= 100) for at in range(0, 100, cut))
    assert len(out) == parts.length
    assert out == b"".join(head + data[a:b] for head, a, b in parts) + parts.tail


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        ("/a.flv?start=100", ("Range: bytes=0-9",)),
        ("/a.flv?start=100", ("Range: bytes=-10",)),
        ("/a.flv?start=100", ("Range: bytes=5-99",)),
        ("/a.flv?start=100", ()),
        ("/a.flv?start=0", ()),
        ("/a.flv?start=x", ()),
        ("/a.flv?start=100000", ()),
        ("/b.flv?start=1", ()),
        ("/a.flv", ("Range: bytes=0-9",)),
    ],
)
async def test_flv(ours, nginx, tmp_path, target, fields):
    (tmp_path / "a.flv").write_bytes(b"".join(b"X%03dXXXXXX" % number for number in range(5000)))
    answers = []
    for side in (ours, nginx):
        await side.start(f"root {tmp_path}; location / {{ flv; }}")
        answers.append(told(await side.get(target, *fields)))
    assert answers[0] == answers[1]
