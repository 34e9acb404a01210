"""What an upstream gets, and what the client gets of its answer, judged by nginx with the same configuration."""

from __future__ import annotations

import asyncio
import re

import pytest

from headrace.testing.origin import Reply, ok


def seen(request) -> tuple:
    return request.method, request.target, request.version, request.headers, request.body


ASKED = [
    ("location / { proxy_pass http://ORIGIN; }", "/a/b?c=d", ()),
    ("location / { proxy_pass http://ORIGIN; }", "/a%20b/../c//d?x=%20y", ()),
    ("location /a/ { proxy_pass http://ORIGIN/x/; }", "/a/b%20c?d", ()),
    ("location /a/ { proxy_pass http://ORIGIN/x/; }", "/a/b+c;d=<e>", ()),
    ("location /a { proxy_pass http://ORIGIN/; }", "/abc", ()),
    ("location = /a { proxy_pass http://ORIGIN/x; }", "/a?b", ()),
    ("location ^~ /a/ { proxy_pass http://ORIGIN/x; }", "/a/b", ()),
    ("location ~ ^/(a)/(.*)$ { proxy_pass http://ORIGIN; }", "/a/b%2Fc", ()),
    ("location ~ ^/(a)/(.*)$ { proxy_pass http://ORIGIN/$2/$1; }", "/a/b?c", ()),
    ("location / { set $u /x$uri; proxy_pass http://ORIGIN$u; }", "/a?b", ()),
    ("location / { set $o ORIGIN; proxy_pass http://$o; }", "/a%20b?c", ()),
    ("location /a/ { rewrite ^/a/(.*) /z/$1 break; proxy_pass http://ORIGIN/x/; }", "/a/b?c", ()),
    ("location /a/ { rewrite ^/a/(.*) /z/$1 break; proxy_pass http://ORIGIN; }", "/a/b%20c?c", ()),
    ("location / { error_page 404 = @n; return 404; } location @n { proxy_pass http://ORIGIN; }", "/a%20b?c", ()),
    ("location / { if ($arg_x) { proxy_pass http://ORIGIN; } }", "/a?x=1", ()),
    ("location /a/ { if ($arg_x) { set $y 1; } proxy_pass http://ORIGIN/b/; }", "/a/c?x=1", ()),
    ("location / { try_files /none @n; } location @n { proxy_pass http://ORIGIN; }", "/a", ()),
    ("location / { proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://ORIGIN; }", "/", ()),
    ("location / { proxy_set_header Host $host; proxy_set_header X-A ''; proxy_pass http://ORIGIN; }", "/",
     ("X-A: 1", "X-B: 2", "x-b: 3", "Accept: */*", "Keep-Alive: 3", "TE: trailers", "Upgrade: x", "Cookie: a=b")),
    ("proxy_set_header X-S 1; location / { proxy_set_header X-L 2; proxy_pass http://ORIGIN; }", "/", ()),
    ("proxy_set_header X-S 1; location / { proxy_pass http://ORIGIN; }", "/", ("Expect: x",)),
    ("location / { proxy_set_header X-F $proxy_add_x_forwarded_for; proxy_pass http://ORIGIN; }", "/",
     ("X-Forwarded-For: 1.2.3.4",)),
    ("location / { proxy_set_header X-H $proxy_host:$proxy_port; proxy_pass http://ORIGIN; }", "/", ()),
    ("location / { proxy_pass_request_headers off; proxy_pass http://ORIGIN; }", "/", ("X-A: 1",)),
    ("location / { proxy_method PATCH; proxy_pass http://ORIGIN; }", "/", ()),
    ("location / { proxy_set_body 'x=$arg_a'; proxy_pass http://ORIGIN; }", "/?a=5", ()),
    ("location / { rewrite ^ /other last; } location /other { proxy_pass http://ORIGIN/n; }", "/a%20b?q", ()),
    ("location / { set $args z=1; proxy_pass http://ORIGIN; }", "/a?q", ()),
]  # fmt: skip


@pytest.mark.parametrize(("server", "target", "fields"), ASKED)
async def test_what_the_upstream_gets_is_what_nginx_sends(ours, nginx, origin, server, target, fields):
    there = await origin([ok(b"hello", close=True)])
    server = server.replace("ORIGIN", f"127.0.0.1:{there.port}")
    answers = []
    for side in (ours, nginx):
        await side.start(server)
        answers.append(await side.get(target, *fields))
    mine, its = there.requests
    assert seen(mine) == seen(its)
    assert (answers[0].status, answers[0].body) == (answers[1].status, answers[1].body) == (200, b"hello")


BODIES = [
    ("", b"a=1", ()),
    ("", b"x" * 50_000, ()),
    ("", b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", ("Transfer-Encoding: chunked",)),
    ("proxy_http_version 1.1;", b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", ("Transfer-Encoding: chunked",)),
    ("proxy_request_buffering off;", b"x" * 50_000, ()),
    ("proxy_request_buffering off; proxy_http_version 1.1;", b"x" * 500_000, ()),
    ("proxy_pass_request_body off; proxy_set_header Content-Length '';", b"abc", ()),
    ("client_body_buffer_size 1k;", b"y" * 30_000, ()),
    ("proxy_set_body '$request_body$request_body';", b"abc", ()),
]


@pytest.mark.parametrize(("directives", "body", "fields"), BODIES)
async def test_request_bodies(ours, nginx, origin, directives, body, fields):
    there = await origin([ok(b"hello", close=True)])
    for side in (ours, nginx):
        await side.start(f"location / {{ {directives} proxy_pass http://127.0.0.1:{there.port}; }}")
        answer = await side.get("/", *fields, method="POST", body=body)
        assert (answer.status, answer.body) == (200, b"hello")
    mine, its = there.requests
    assert seen(mine) == seen(its)


ANSWERS = [
    ("", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\nDate: x\r\nServer: y\r\nX-Pad: z\r\n\r\nok"),
    ("", b"HTTP/1.0 200 OK\r\nContent-Type: text/x\r\n\r\nuntil close"),
    ("", b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    ("", b"HTTP/1.1 299 Own Words\r\nContent-Length: 0\r\nETag: \"x\"\r\n\r\n"),
    ("", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    ("", b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nContent-Type: text/html\r\n\r\nnot"),
    ("", b"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: 1\n\nok"),
    ("", b""),
    ("", b"HTTP/1.1 200 OK\r\nContent-Le"),
    ("", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
    ("", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    ("", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more"),
    ("", b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 5000 + b"\r\nContent-Length: 2\r\n\r\nok"),
    ("proxy_buffer_size 8k; proxy_buffers 4 8k;",
     b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 5000 + b"\r\nContent-Length: 2\r\n\r\nok"),
    ("proxy_hide_header X-A; proxy_pass_header Server;",
     b"HTTP/1.1 200 OK\r\nX-A: 1\r\nServer: y\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_pass_header Date; proxy_pass_header X-Accel-Buffering;",
     b"HTTP/1.1 200 OK\r\nDate: then\r\nX-Accel-Buffering: no\r\nContent-Length: 0\r\n\r\n"),
    ("", b"HTTP/1.1 302 Found\r\nLocation: http://ORIGIN/x\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_redirect off;", b"HTTP/1.1 302 Found\r\nLocation: http://ORIGIN/x\r\nContent-Length: 0\r\n\r\n"),
    ("", b"HTTP/1.1 302 Found\r\nLocation: /rel\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_redirect ~^http://(.*)/x https://$host/$1; proxy_redirect /rel /abs;",
     b"HTTP/1.1 302 Found\r\nLocation: http://ORIGIN/x\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_redirect /rel /abs;",
     b"HTTP/1.1 302 Found\r\nLocation: /rel/x\r\nRefresh: 7; url=/rel/y\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_cookie_domain .a.b c.d; proxy_cookie_path /x /y;",
     b"HTTP/1.1 200 OK\r\nSet-Cookie: k=v; Domain=A.b; Path=/x/z; Secure\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_cookie_domain ~\\.?(b)$ $1.net; proxy_cookie_path ~*^/X(.*) $1;",
     b"HTTP/1.1 200 OK\r\nSet-Cookie: k=v;domain=a.b;path=/x/z\r\nSet-Cookie: k2=v2\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_cookie_flags k secure httponly samesite=lax; proxy_cookie_flags ~k nosecure;",
     b"HTTP/1.1 200 OK\r\nSet-Cookie: k=v; Path=/\r\nSet-Cookie: k2=w; Secure; x\r\nContent-Length: 0\r\n\r\n"),
    ("error_page 503 /e; proxy_intercept_errors on;",
     b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"),
    ("error_page 503 /e;", b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"),
    ("", b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /e?x=1\r\nX-A: 1\r\nSet-Cookie: a\r\nContent-Length: 0\r\n\r\n"),
    ("", b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: @n\r\nContent-Length: 3\r\n\r\nabc"),
    ("proxy_ignore_headers X-Accel-Redirect;",
     b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /e\r\nContent-Length: 3\r\n\r\nabc"),
    ("add_header X-S $upstream_status-$upstream_http_x_a-$upstream_cookie_k;",
     b"HTTP/1.1 200 OK\r\nX-A: 1\r\nSet-Cookie: k=v; x\r\nContent-Length: 0\r\n\r\n"),
    ("proxy_buffering off;", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000),
    ("", b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000),
    ("", (b"HTTP/1.1 200 OK\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nAccept-Ranges: bytes\r\nCache-Control: a\r\n"
         b"Cache-Control: b\r\nExpires: x\r\nContent-Length: 0\r\n\r\n")),
]  # fmt: skip


VERSION = re.compile(rb"nginx/[0-9.]+")


def shown(answer) -> tuple:
    fields = sorted(
        (name.lower(), value)
        for name, value in answer.fields
        if name.lower() not in ("server", "date") or value in ("y", "then")
    )
    return answer.line, fields, VERSION.sub(b"nginx/x", answer.body), answer.whole


@pytest.mark.parametrize(("directives", "reply"), ANSWERS)
async def test_what_the_client_gets_is_what_nginx_gives(ours, nginx, origin, directives, reply):
    there = await origin(lambda _request: Reply(reply.replace(b"ORIGIN", b"127.0.0.1:%d" % there.port), close=True))
    server = f"""
        location / {{ {directives} proxy_pass http://127.0.0.1:{there.port}; }}
        location /e {{ internal; return 200 "error page $args"; }}
        location @n {{ return 200 named; }}
    """
    answers = []
    for side in (ours, nginx):
        await side.start(server)
        answers.append(await side.get("/x"))
    assert shown(answers[0]) == shown(answers[1])


async def test_nobody_there_is_told_as_nginx_tells_it(ours, nginx, origin):
    there = await origin([ok()])
    await there.stop()
    logs = []
    for side in (ours, nginx):
        await side.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; }}", log="$status $upstream_status")
        assert (await side.get("/x")).status == 502
        await asyncio.sleep(0)
        line = next(line for line in side.log().splitlines() if "[error]" in line)
        logs.append(line.partition("*")[2].partition(" ")[2])
    assert logs[0] == logs[1]
    assert ours.log("access.log") == "502 502\n"


async def test_interim_answers_are_skipped(ours, origin):
    there = await origin([Reply(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")])
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; }}")
    answer = await ours.get("/")
    assert (answer.status, answer.body) == (200, b"ok")


async def test_an_answer_without_a_head_gets_one(ours, origin):
    """nginx hands such bytes on as they are, which no client of HTTP/1 can tell from the head of another answer."""
    there = await origin([Reply(b"garbage", close=True)])
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; }}")
    answer = await ours.get("/")
    assert (answer.status, answer.body) == (200, b"garbage")
    assert "upstream sent no valid HTTP/1.0 header while reading response header from upstream" in ours.log()


async def test_a_body_in_broken_chunks_is_told(ours, origin):
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\nabc\r\n"
    there = await origin([Reply(data, close=True)])
    await ours.start(f"location / {{ proxy_pass http://127.0.0.1:{there.port}; }}")
    assert (await ours.get("/")).status == 502
    assert "upstream sent invalid chunked response" in ours.log()
