"""Content handlers and filters of bodies: one table for the gateway and for nginx."""

from __future__ import annotations

import asyncio
import zlib

import pytest
from content_table import HTTP, SERVER, TABLE, make_files

from headrace.errors import ConfError


def server(folder) -> str:
    make_files(folder)
    folder.chmod(0o755)
    text = SERVER
    for _, target, code, _, _, _ in TABLE:
        path = target.partition("?")[0]
        if code:
            begin = path[: path.rfind("/") + 1] if path.count("/") > 1 else path
            text += f"\n    location {'' if path.count('/') > 1 else '= '}{begin} {{ {code} }}"
    return text.replace("{root}", str(folder / "root"))


def check(answers) -> None:
    wrong = []
    for (name, _, _, _, status, text), answer in zip(TABLE, answers, strict=True):
        head, body = answer.head.decode("latin-1"), answer.body.decode("latin-1")
        if str(answer.status) != status or not any(
            text in one for one in (f"{head}\r\n\r\n{body}", answer.raw.decode("latin-1"))
        ):
            wrong.append(f"{name}: {answer.status} {head!r} {body!r}")
    assert not wrong, "\n".join(wrong)


async def test_content(gateway, tmp_path):
    await gateway.start(server(tmp_path), http=HTTP)
    check([await gateway.get(row[1], *row[3]) for row in TABLE])


@pytest.mark.peer
def test_content_in_nginx(nginx, tmp_path):
    get = nginx(server(tmp_path), http=HTTP)
    check([get(row[1], *row[3]) for row in TABLE])


async def test_parts_wait_for_slow_subrequests_and_go_through_compression(gateway):
    await gateway.start(
        "location = /slow { content_by_lua_block { ngx.sleep(0.05) ngx.print('slow') } } "
        "location = /quick { echo -n quick; } "
        "location = / { default_type text/html; gzip on; gzip_min_length 1; "
        "add_before_body /slow; add_after_body /quick; content_by_lua_block { ngx.print('body') } }"
    )
    plain = await gateway.get("/")
    assert plain.text == "slowbodyquick"
    packed = await gateway.get("/", "Accept-Encoding: gzip")
    assert zlib.decompress(packed.body, 31) == b"slowbodyquick"


async def test_a_page_in_pieces(gateway):
    page = '<!--#set var="a" value="b" -->[<!--#echo var="a" -->]<!--#include virtual="/said" -->!'
    pieces = " ".join(f"ngx.print({char!r}) ngx.flush(true)" for char in page)
    await gateway.start(
        "location = /said { echo -n said; } "
        "location = / { default_type text/html; ssi on; content_by_lua_block { " + pieces + " } }"
    )
    assert (await gateway.get("/")).text == "[b]said!"


async def test_dav(gateway, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    await gateway.start(
        f"root {root}; location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; min_delete_depth 1; }}"
    )
    steps = [
        ("PUT", "/a/b", b"one", (), 201),
        ("PUT", "/a/b", b"two", (), 204),
        ("PUT", "/a/", b"two", (), 409),
        ("PUT", "/a", b"two", (), 409),
        ("MKCOL", "/c/", b"", (), 201),
        ("MKCOL", "/c/", b"", (), 405),
        ("MKCOL", "/d", b"", (), 409),
        ("MKCOL", "/x/y/", b"", (), 409),
        ("COPY", "/a/b", b"", ("Destination: /c/b",), 204),
        ("COPY", "/a/b", b"", ("Destination: http://localhost/c/b", "Overwrite: F"), 412),
        ("COPY", "/a/b", b"", ("Destination: http://elsewhere/c/b",), 400),
        ("COPY", "/a/b", b"", (), 400),
        ("COPY", "/a/", b"", ("Destination: /e/",), 201),
        ("MOVE", "/e/", b"", ("Destination: /f/",), 201),
        ("MOVE", "/f/b", b"", ("Destination: /g",), 204),
        ("DELETE", "/", b"", (), 409),
        ("DELETE", "/f", b"", (), 409),
        ("DELETE", "/f/", b"", ("Depth: 0",), 400),
        ("DELETE", "/f/", b"", (), 204),
        ("DELETE", "/none", b"", (), 404),
        ("DELETE", "/g", b"x", (), 415),
    ]
    found = []
    for method, target, body, fields, _ in steps:
        answer = await gateway.get(target, *fields, method=method, body=body)
        found.append((method, target, answer.status))
    assert found == [(method, target, status) for method, target, _, _, status in steps]
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["a", "a/b", "c", "c/b", "g"]
    assert (root / "g").read_bytes() == b"two"


async def test_mirror_and_post_action(gateway):
    await gateway.start(
        "location / { mirror /copy; mirror /off; echo_read_request_body; echo $request_body; post_action /after; }"
        "location = /copy { internal; content_by_lua_block { ngx.req.read_body() seen('copy ' .. ngx.var.request_body) } }"
        "location = /off { internal; return 500; }"
        "location = /after { internal; content_by_lua_block { seen('after ' .. ngx.var.request_uri) } }"
        "location = /seen { content_by_lua_block { ngx.print(table.concat(list, ',')) } }",
        http="init_by_lua_block { list = {} function seen(x) list[#list + 1] = x end }",
    )
    assert (await gateway.get("/x", method="POST", body=b"body")).text == "body\n"
    for _ in range(200):
        text = (await gateway.get("/seen")).text
        if "copy body" in text and "after /x" in text:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(text)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("autoindex_format yaml;", 'invalid value "yaml"'),
        ("gzip_static maybe;", 'invalid value "maybe"'),
        ("charset a; source_charset b;", 'no "charset_map" between the charsets "b" and "a"'),
        ("location / { secure_link_secret a; secure_link b; }", "cannot be mixed"),
        ("dav_methods GET;", 'invalid value "GET"'),
        ("dav_access user:x;", 'invalid value "user:x"'),
        ("mirror a; mirror off;", '"mirror" directive is duplicate'),
        ("access_log syslog:facility=user;", "no syslog server specified"),
        ("access_log syslog:server=a,facility=x;", 'unknown syslog facility "x"'),
        ("access_log syslog:server=a,tag=a-b;", "alphanumeric"),
        ("access_log syslog:server=a combined buffer=1k;", "cannot be buffered"),
        ("open_log_file_cache min_uses=2;", 'must have "max" parameter'),
    ],
)
async def test_refuses(gateway, code, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(code)


async def test_a_name_without_its_slash_leads_to_the_location_that_passes_on(gateway):
    await gateway.start(
        f"location /a/ {{ proxy_pass http://unix:{gateway.path}:/b; }} location /a/c {{ echo c; }} location /b {{ echo b; }}"
    )
    answer = await gateway.get("/a?x=1")
    assert (answer.status, answer.headers["location"]) == (301, "http://localhost/a/?x=1")
    assert (await gateway.get("/a/")).text == "b\n"
    assert (await gateway.get("/a/c")).text == "c\n"


async def test_a_condition_that_fails_after_output_gives_the_page(gateway):
    await gateway.content("ngx.header['Last-Modified'] = 'Mon, 28 Sep 1970 06:00:00 GMT' ngx.say('hello')")
    answer = await gateway.get("/", "If-Unmodified-Since: Sun, 27 Sep 1970 06:00:00 GMT")
    assert answer.status == 412
    assert "<title>412 Precondition Failed</title>" in answer.text
    assert "hello" not in answer.text


async def test_pipelined_requests_are_told_of(gateway):
    await gateway.start("location / { echo -n $pipe; }")
    request = b"GET / HTTP/1.1\r\nHost: a\r\n"
    raw = await gateway.raw(request + b"\r\n" + request + b"Connection: close\r\n\r\n")
    assert [piece.partition(b"\r\n\r\n")[2][3:4] for piece in raw.split(b"HTTP/1.1 200 OK")[1:]] == [b".", b"p"]
