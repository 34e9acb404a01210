"""Small rules of nginx's core, judged by nginx with the same configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "upstream"))
from upstream_rig import nginx, ours  # noqa: F401 - fixtures

MSIE = "User-Agent: Mozilla/4.0 (compatible; MSIE 5.5)"
TABLE = [
    ("location / { return 301; }", "/", ()),
    ("location / { return 302; error_page 302 text; }", "/", ()),
    ("location / { return 303 ''; }", "/", ()),
    ("location / { return 307 $arg_x; }", "/", ()),
    ("msie_refresh on; location / { return 301 'a b\"'; }", "/", (MSIE,)),
    ("msie_refresh on; location / { return 301 'a'; }", "/", ()),
    ("msie_refresh on; location / { return 303 'a'; }", "/", (MSIE,)),
    ("location / { return 301 'a'; }", "/", (MSIE,)),
    ("location / { set $http_a b; return 200 $http_a; } location /n { return 200 '$http_a'; }", "/n", ("A: c",)),
    ("location / { set $http_a b; return 200 $http_a; } location /n { return 200 '$http_a'; }", "/", ("A: c",)),
    ('location "/a b\\"<>^`{|}/" { proxy_pass http://127.0.0.1:9; }', "/a%20b%22%3C%3E%5E%60%7B%7C%7D", ()),
    ("location / { rewrite ^ /n; break; return 200 no; } location /n { return 200 yes; }", "/", ()),
]


@pytest.mark.parametrize(("server", "target", "fields"), TABLE)
async def test_it_is_as_in_nginx(ours, nginx, server, target, fields):  # noqa: F811
    answers = []
    for side in (ours, nginx):
        await side.start(server)
        answer = await side.get(target, *fields)
        page = answer.body.replace(b"1.26.3", b"1.22.1")
        answers.append((answer.line, answer.headers.get("location"), answer.headers.get("content-type"), page))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("word", "agent", "method", "kept"),
    [
        ("msie6", "Mozilla/4.0 (compatible; MSIE 6.0)", "POST", False),
        ("msie6", "Mozilla/4.0 (compatible; MSIE 6.0; SV1)", "POST", True),
        ("msie6", "Mozilla/4.0 (compatible; MSIE 5.0)", "GET", True),
        ("safari", "Mozilla/5.0 (Macintosh; Intel Mac OS X) Safari/600", "GET", False),
        ("none", "Mozilla/5.0 (Macintosh; Intel Mac OS X) Safari/600", "GET", True),
    ],
)
async def test_keepalive_disable(ours, word, agent, method, kept):  # noqa: F811
    await ours.start(f"keepalive_disable {word}; location / {{ return 200 a; }}")
    reader, writer = await ours.connect()
    writer.write(f"{method} / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\nContent-Length: 0\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert (b"Connection: keep-alive" in head) is kept
    writer.close()


async def test_who_waits_for_a_word_before_it_sends_nothing_gets_one(ours, nginx):  # noqa: F811
    answers = []
    for side in (ours, nginx):
        await side.start("location / { proxy_pass http://unix:/nowhere; }")
        answers.append([(await side.get("/", f"Expect: {word}")).line for word in ("100-Continue", "x")])
    assert answers[0] == answers[1] == ["HTTP/1.1 100 Continue", "HTTP/1.1 502 Bad Gateway"]


async def test_a_host_that_is_none_is_our_address(ours):  # noqa: F811
    await ours.start("location / { return 301 /b; }")
    assert (await ours.get("/")).headers["location"] == "http://localhost/b"
    raw = await ours.raw(b"GET / HTTP/1.0\r\n\r\n")
    assert b"Location: http://unix:" in raw


FILES = [
    ("location ~ /re.html { alias FOLDER/d; try_files $uri =404; }", "/re.html"),
    ("location ~ /re.html { alias FOLDER/d; try_files $uri/ =404; }", "/re.html"),
    ("location /in/ { alias FOLDER/; location ~ html { try_files $uri =404; } }", "/in/a.html"),
    ("location /in/ { alias FOLDER/; location ~ html { try_files $uri =404; } }", "/in/none.html"),
    ("location /in/ { alias FOLDER/; try_files $uri /in/a.html =404; }", "/in/none"),
    ("location / { root FOLDER; try_files /d/re.html =404; }", "/x"),
]


@pytest.mark.parametrize(("server", "target"), FILES)
async def test_try_files_with_alias(ours, nginx, tmp_path, server, target):  # noqa: F811
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "re.html").write_text("in d")
    (tmp_path / "a.html").write_text("a")
    answers = []
    for side in (ours, nginx):
        await side.start(server.replace("FOLDER", str(tmp_path)))
        answer = await side.get(target)
        answers.append((answer.status, answer.body if answer.status == 200 else b""))
    assert answers[0] == answers[1]
