"""proxy_cache: what is kept and for how long, judged by nginx; stale answers, locks, revalidation, variants."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from headrace.core.http1.parse import parse_response_head
from headrace.edge.upstream.cache.fresh import lifetime_of
from headrace.testing.origin import Reply, ok

NOW = 1_800_000_000.0
IN_AN_HOUR = "Fri, 15 Jan 2027 09:00:00 GMT"

LIVES = [
    ("", 60.0),
    ("Cache-Control: max-age=5", 5.0),
    ("Cache-Control: max-age=5, s-maxage=7", 7.0),
    ("Cache-Control: private, max-age=5", None),
    ("Cache-Control: no-store", None),
    ("Cache-Control: no-cache", None),
    ("Cache-Control: max-age=0", None),
    (f"Expires: {IN_AN_HOUR}", 3600.0),
    ("Expires: Thu, 01 Jan 1970 00:00:01 GMT", None),
    ("Expires: 0", None),
    (f"Expires: {IN_AN_HOUR}\r\nCache-Control: max-age=9", 9.0),
    ("X-Accel-Expires: 11\r\nCache-Control: max-age=9", 11.0),
    ("X-Accel-Expires: 11\r\nCache-Control: no-store", 11.0),
    ("X-Accel-Expires: 0", None),
    ("X-Accel-Expires: @1800000100", 100.0),
    ("Set-Cookie: a=b", None),
    ("Vary: *", None),
    ("Vary: Accept", 60.0),
]


@pytest.mark.parametrize(("fields", "seconds"), LIVES)
def test_lifetimes(fields, seconds):
    head = parse_response_head(
        f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".replace("\r\n\r\n\r\n", "\r\n\r\n").encode(), b"GET"
    )
    found = lifetime_of(head, frozenset(), {200: 60.0}, NOW)
    assert found.valid == (0.0 if seconds is None else NOW + seconds)
    ignored = frozenset((b"cache-control", b"expires", b"x-accel-expires", b"set-cookie", b"vary"))
    assert lifetime_of(head, ignored, {0: 3.0}, NOW).valid == NOW + 3.0


SEQUENCES = [
    ("proxy_cache_valid 1m;", ok(b"x"), ["/", "/", "/?a", "/"]),
    ("", ok(b"x"), ["/", "/"]),
    ("", ok(b"x", headers=["Cache-Control: max-age=100"]), ["/", "/"]),
    ("proxy_cache_valid 1m;", ok(b"x", headers=["Set-Cookie: a"]), ["/", "/"]),
    ("proxy_cache_valid 1m; proxy_ignore_headers Set-Cookie;", ok(b"x", headers=["Set-Cookie: a"]), ["/", "/"]),
    ("proxy_cache_valid 404 1m;", ok(b"x", status="404 Not Found"), ["/", "/"]),
    ("proxy_cache_valid any 1m;", ok(b"x", status="500 Oh"), ["/", "/"]),
    ("proxy_cache_valid 1m; proxy_cache_bypass $arg_b;", ok(b"x"), ["/", "/?b=1", "/?b=0"]),
    ("proxy_cache_valid 1m; proxy_cache_key k; proxy_no_cache $arg_n;", ok(b"x"), ["/?n=1", "/", "/?n=1"]),
    ("proxy_cache_valid 1m; proxy_cache_min_uses 2;", ok(b"x"), ["/", "/", "/"]),
    ("proxy_cache_valid 1m;", ok(b"x" * 100_000), ["/", "/"]),
    ("proxy_cache_valid 1m;", ok(b"x" * 100, chunked=True), ["/", "/"]),
    ("proxy_cache_valid 1m;", ok(b"x", headers=["Vary: X-V"]), ["/ X-V:1", "/ X-V:1", "/ X-V:2", "/ X-V:2", "/ X-V:1"]),
    ("proxy_cache_valid 1m;", ok(b"x"), ["HEAD /", "/", "POST /", "HEAD /"]),
    ("proxy_cache_valid 1m;", ok(b"0123456789", headers=["ETag: \"e\"", "Accept-Ranges: bytes"]), ["/", "/ Range:bytes=2-4", "/ If-None-Match:\"e\""]),
    ("proxy_cache_valid 1m;", ok(b"x", headers=["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"]),
     ["/", "/ If-Modified-Since:Sun, 06 Nov 1994 08:49:37 GMT", "/ If-Modified-Since:Sun, 06 Nov 1993 08:49:37 GMT"]),
]  # fmt: skip


@pytest.mark.parametrize(("directives", "reply", "steps"), SEQUENCES)
async def test_what_is_kept_is_what_nginx_keeps(ours, nginx, origin, directives, reply, steps):
    seen = []
    for side in (ours, nginx):
        there = await origin([reply])
        await side.start(
            f"location / {{ {directives} proxy_cache z; add_header X-C $upstream_cache_status always;"
            f"proxy_pass http://127.0.0.1:{there.port}; }}",
            f"proxy_cache_path {side.folder}/cache levels=1:2 keys_zone=z:1m;",
        )
        rows = []
        for step in steps:
            method, _, rest = step.rpartition(" /") if step[0] != "/" else ("GET", "", step[1:])
            target, _, field = rest.partition(" ")
            fields = [field.replace(":", ": ", 1)] if field else []
            answer = await side.get("/" + target, *fields, method=method)
            rows.append((answer.status, answer.headers.get("x-c"), answer.body, answer.headers.get("content-range")))
        seen.append((rows, [(one.method, one.header("range")) for one in there.requests]))
    assert seen[0] == seen[1]


CACHE = "proxy_cache_path FOLDER/cache keys_zone=z:1m;"


async def started(ours, port: int, directives: str):
    await ours.start(
        f"location / {{ {directives} proxy_cache z; add_header X-C $upstream_cache_status always;"
        f"proxy_pass http://127.0.0.1:{port}; }}",
        CACHE.replace("FOLDER", str(ours.folder)),
    )

    async def get(*fields: str) -> tuple:
        answer = await ours.get("/", *fields)
        return answer.status, answer.headers.get("x-c"), answer.body

    return get


def expire(ours) -> None:
    """Make every entry one that was valid until long ago."""
    for path in (ours.folder / "cache").glob("[0-9a-f]*"):
        data = path.read_bytes()
        new = re.sub(rb'(?<="valid": )[0-9.]+', lambda match: b"1.".ljust(len(match[0]), b"0"), data)
        assert len(new) == len(data)
        path.write_bytes(new)


async def test_an_old_answer_serves_while_the_upstream_fails(ours, origin):
    replies = iter([ok(b"good"), ok(b"bad", status="500 Oh"), Reply(b"", close=True), ok(b"new")])
    there = await origin(lambda _request: next(replies))
    get = await started(ours, there.port, "proxy_cache_valid 200 1m; proxy_cache_use_stale error http_500;")
    assert await get() == (200, "MISS", b"good")
    expire(ours)
    assert await get() == (200, "STALE", b"good")
    assert await get() == (200, "STALE", b"good")
    assert await get() == (200, "EXPIRED", b"new")
    assert await get() == (200, "HIT", b"new")


async def test_an_old_answer_is_asked_about(ours, origin):
    replies = iter([ok(b"good", headers=['ETag: "1"']), ok(status="304 Not Modified")])
    there = await origin(lambda _request: next(replies))
    get = await started(ours, there.port, "proxy_cache_valid 200 1m; proxy_cache_revalidate on;")
    assert await get() == (200, "MISS", b"good")
    expire(ours)
    assert await get() == (200, "REVALIDATED", b"good")
    assert await get() == (200, "HIT", b"good")
    assert [one.header("if-none-match") for one in there.requests] == [None, '"1"']


async def test_one_fetches_and_the_others_wait(ours, origin):
    there = await origin([Reply(ok(b"good").data, delay=0.1)])
    get = await started(ours, there.port, "proxy_cache_valid 200 1m; proxy_cache_lock on;")
    found = await asyncio.gather(*(get() for _ in range(6)))
    assert sorted(found) == [(200, "HIT", b"good")] * 5 + [(200, "MISS", b"good")]
    assert len(there.requests) == 1


async def test_an_update_behind_the_clients_back(ours, origin):
    replies = iter([ok(b"old"), Reply(ok(b"new").data, delay=0.05)])
    there = await origin(lambda _request: next(replies))
    directives = "proxy_cache_valid 200 1m; proxy_cache_use_stale updating; proxy_cache_background_update on;"
    get = await started(ours, there.port, directives)
    await get()
    expire(ours)
    reader, writer = await ours.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"STALE" in await asyncio.wait_for(reader.readuntil(b"old"), 10)
    assert await get() == (200, "UPDATING", b"old")
    assert await asyncio.wait_for(reader.read(), 10) == b""  # who waits for the end finds the new one
    writer.close()
    assert await get() == (200, "HIT", b"new")
    while (found := await get())[1] == "UPDATING":
        await asyncio.sleep(0.01)
    assert found == (200, "HIT", b"new")
    assert len(there.requests) == 2


async def test_a_damaged_entry_is_none(ours, origin):
    there = await origin([ok(b"good")])
    get = await started(ours, there.port, "proxy_cache_valid 200 1m;")
    await get()
    (path,) = (ours.folder / "cache").glob("[0-9a-f]*")
    whole = path.read_bytes()
    for damage in (b"", whole[:9], whole[:40], b"x" * 100, whole.replace(b'"key"', b'"kex"')):
        path.write_bytes(damage)
        assert (await get())[1] == "MISS"
        assert (await get())[1] == "HIT"


async def test_the_cache_has_a_limit(ours, origin):
    there = await origin([ok(b"x" * 10_000)])
    await ours.start(
        f"location / {{ proxy_cache_valid 200 1m; proxy_cache z; proxy_pass http://127.0.0.1:{there.port}; }}",
        f"proxy_cache_path {ours.folder}/cache keys_zone=z:1m max_size=50k;",
    )
    for number in range(20):
        await ours.get(f"/{number}")
    assert len(list((ours.folder / "cache").glob("[0-9a-f]*"))) == 5
    assert list((ours.folder / "cache/.temp").iterdir()) == []


async def test_what_nobody_uses_is_removed(ours, origin):
    there = await origin([ok(b"x")])
    temp = ours.folder / "cache/.temp"
    temp.mkdir(parents=True)
    (temp / ".new-left").write_bytes(b"half")
    os.utime(temp / ".new-left", (1, 1))
    await ours.start(
        f"location / {{ proxy_cache_valid 200 1m; proxy_cache z; proxy_pass http://127.0.0.1:{there.port}; }}",
        f"proxy_cache_path {ours.folder}/cache levels=1:2 keys_zone=z:1m inactive=200ms;",
    )
    await ours.get("/")
    assert len(list((ours.folder / "cache").glob("?/??/*"))) == 1
    assert list(temp.iterdir()) == []
    async with asyncio.timeout(10):
        while list((ours.folder / "cache").glob("?/??/*")):
            await asyncio.sleep(0.05)
    await ours.get("/")
    assert len(there.requests) == 2


async def test_a_restart_finds_what_was_kept(ours, origin, tmp_path):
    there = await origin([ok(b"x")])
    conf = (
        f"location / {{ proxy_cache_valid 200 1m; proxy_cache z; proxy_pass http://127.0.0.1:{there.port}; }}",
        f"proxy_cache_path {tmp_path}/cache keys_zone=z:1m;",
    )
    await ours.start(*conf)
    await ours.get("/")
    await ours.gateway.stop(0)
    os.unlink(ours.path)
    await ours.start(*conf)
    assert (await ours.get("/")).body == b"x"
    assert len(there.requests) == 1


async def test_an_error_that_is_answered_here_is_kept_as_one(ours, origin):
    there = await origin([ok(b"no", status="403 Forbidden", headers=["Cache-Control: max-age=60"])])
    get = await started(ours, there.port, "proxy_intercept_errors on; error_page 403 /e;")
    for _ in range(2):
        assert (await get())[0] == 403
    assert [one.target for one in there.requests] == ["/", "/e"]


async def test_a_304_that_says_nothing_renews_what_was_said(ours, origin):
    replies = iter([ok(b"good", headers=['ETag: "1"', "Cache-Control: max-age=60"]), ok(status="304 Not Modified")])
    there = await origin(lambda _request: next(replies))
    get = await started(ours, there.port, "proxy_cache_revalidate on;")
    await get()
    expire(ours)
    assert await get() == (200, "REVALIDATED", b"good")
    assert await get() == (200, "HIT", b"good")


async def test_purge(ours, origin):
    there = await origin(
        lambda request: ok(request.target.encode(), headers=["Vary: X-V"] if "v" in request.target else [])
    )
    await ours.start(
        f"location / {{ proxy_cache z; proxy_cache_key $uri; proxy_cache_valid 1m; proxy_cache_purge $purge;"
        f"add_header X-C $upstream_cache_status; proxy_pass http://127.0.0.1:{there.port}; }}",
        CACHE.replace("FOLDER", str(ours.folder)) + " map $request_method $purge { PURGE 1; }",
    )

    async def get(target: str, *fields: str) -> str | None:
        return (await ours.get(target, *fields)).headers.get("x-c")

    async def purge(target: str) -> int:
        return (await ours.get(target, method="PURGE")).status

    assert [await get("/a"), await get("/a"), await get("/b/1"), await get("/b/2")] == ["MISS", "HIT", "MISS", "MISS"]
    assert [await purge("/a"), await purge("/a"), await purge("/none")] == [204, 404, 404]
    assert [await get("/a"), await get("/b/1")] == ["MISS", "HIT"]
    assert [await purge("/b/*"), await purge("/b/*")] == [204, 404]
    assert [await get("/a"), await get("/b/1"), await get("/b/2")] == ["HIT", "MISS", "MISS"]
    for value in "12":
        assert [await get("/v", f"X-V: {value}"), await get("/v", f"X-V: {value}")] == ["MISS", "HIT"]
    assert await purge("/v") == 204
    assert [await get("/v", f"X-V: {value}") for value in "12"] == ["MISS", "MISS"]
    assert len([one for one in there.requests if one.method == "PURGE"]) == 0
