"""FastCGI, SCGI, uwsgi, memcached: what is sent, byte by byte as nginx sends it, and what becomes of the answers."""

from __future__ import annotations

import asyncio

import pytest
from test_proxy_pass import shown

from headrace.edge.upstream.cgi import CgiReader
from headrace.edge.upstream.fastcgi import END, STDERR, STDOUT, FastcgiReader, record
from headrace.edge.upstream.memcached import MemcachedReader
from headrace.edge.upstream.reply import BadReply

CGI = b"Status: 201 Made\r\nX-A: 1\r\nContent-Type: text/x\r\n\r\nhello"
FAST = record(STDOUT, CGI[:30]) + record(STDERR, b"oops\n") + record(STDOUT, CGI[30:]) + record(STDOUT, b"")
FAST += record(END, bytes(8))


def talker(bare, reply: bytes, got: list[bytes]):
    """A server that keeps what it is sent, and answers when nothing more comes for a moment."""

    async def serve(reader, writer) -> None:
        data = await reader.read(65536)
        try:
            while True:
                data += await asyncio.wait_for(reader.read(65536), 0.05) or b""
                if reader.at_eof():
                    break
        except TimeoutError:
            pass
        got.append(data)
        writer.write(reply)

    return bare(serve)


CASES = [
    ("fastcgi", "fastcgi_param A b; fastcgi_param C $uri if_not_empty; fastcgi_param D '' if_not_empty;", FAST),
    ("fastcgi", "fastcgi_index i.php; fastcgi_param S $fastcgi_script_name; fastcgi_keep_conn on;", FAST),
    (
        "fastcgi",
        "fastcgi_split_path_info ^(/a)(.*)$; fastcgi_param S $fastcgi_script_name:$fastcgi_path_info;",
        FAST,
    ),
    ("fastcgi", "", record(STDOUT, b"Location: /x\r\n\r\n") + record(STDOUT, b"") + record(END, bytes(8))),
    ("fastcgi", "", record(STDOUT, b"X: y\r\n\r\nabc") + record(STDOUT, b"") + record(END, bytes(8))),
    ("fastcgi", "", record(STDERR, b"only this") + record(END, bytes(8))),
    ("scgi", "scgi_param SCGI 1; scgi_param A b;", CGI),
    ("scgi", "scgi_param SCGI 1;", b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc"),
    ("uwsgi", "uwsgi_param A b; uwsgi_modifier1 5;", CGI),
    ("uwsgi", "uwsgi_pass_request_headers off; uwsgi_param A b;", b"HTTP/1.1 200 OK\r\n\r\nabc"),
]


@pytest.mark.parametrize(("kind", "directives", "reply"), CASES)
@pytest.mark.parametrize("body", [b"", b"a=1", b"z" * 40_000])
async def test_requests_and_answers_are_those_of_nginx(ours, nginx, bare, kind, directives, reply, body):
    got: list[bytes] = []
    port = await talker(bare, reply, got)
    answers = []
    for side in (ours, nginx):
        await side.start(f"location / {{ {directives} {kind}_pass 127.0.0.1:{port}; }}")
        fields = ("Cookie: a=b", "X-One: 1", "Content-Type: t/x")
        answers.append(await side.get("/a/?q=1", *fields, method="POST" if body else "GET", body=body))
    assert shown(answers[0]) == shown(answers[1])
    mine, its = got
    if kind == "fastcgi":
        mine, its = records(mine), records(its)
    assert mine == its


def records(data: bytes) -> dict[int, bytes]:
    """The contents of the records by kind: how a body is cut is everybody's own matter."""
    found: dict[int, bytes] = {}
    while data:
        size, padding = int.from_bytes(data[4:6], "big"), data[6]
        found[data[1]] = found.get(data[1], b"") + data[8 : 8 + size]
        data = data[8 + size + padding :]
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_records_at_every_split(step):
    reader = FastcgiReader(b"GET", 4096)
    body = b""
    for at in range(0, len(FAST), step):
        body += b"".join(reader.feed(FAST[at : at + step]))
    assert (reader.head.status, reader.head.reason, body, reader.done) == (201, b"Made", b"hello", True)
    assert reader.notes == [(4, b'FastCGI sent in stderr: "oops" while reading response header from upstream')]


def test_a_large_record_is_handed_on_before_it_is_whole():
    reader = FastcgiReader(b"GET", 4096)
    reader.feed(record(STDOUT, b"X: y\r\n\r\n"))
    data = record(STDOUT, b"x" * 60_000) + record(END, bytes(8))
    first = reader.feed(data[:30_000])
    rest = reader.feed(data[30_000:])
    assert sum(map(len, first)) == 29_992
    assert sum(map(len, first + rest)) == 60_000
    assert reader.done


def test_broken_records():
    for data in (b"\2\6\0\1\0\0\0\0", b"\1\x63\0\1\0\0\0\0", record(END, bytes(8))):
        with pytest.raises(BadReply):
            FastcgiReader(b"GET", 4096).feed(data)


def test_a_cgi_answer_that_ends_before_its_head_is_whole():
    reader = CgiReader(b"GET", 4096)
    reader.feed(b"Status: 200 OK\r\n")
    with pytest.raises(BadReply):
        reader.eof()


@pytest.mark.parametrize("step", [1, 3, 100])
def test_memcached_answers(step):
    data = b"VALUE k 2 5\r\nhello\r\nEND\r\n"
    reader = MemcachedReader(b"k", 2, 4096)
    body = b"".join(b"".join(reader.feed(data[at : at + step])) for at in range(0, len(data), step))
    assert (body, reader.done, reader.keep_alive) == (b"hello", True, True)
    assert reader.head.header(b"content-encoding") == b"gzip"


MEMCACHED = [
    b"VALUE /k%20x 0 5\r\nhello\r\nEND\r\n",
    b"VALUE /k%20x 0 0\r\n\r\nEND\r\n",
    b"END\r\n",
    b"ERROR\r\n",
    b"VALUE other 0 5\r\nhello\r\nEND\r\n",
    b"",
]


@pytest.mark.parametrize("reply", MEMCACHED)
async def test_memcached_as_nginx(ours, nginx, bare, reply):
    got: list[bytes] = []
    port = await talker(bare, reply, got)
    answers = []
    for side in (ours, nginx):
        await side.start(
            f"location / {{ set $memcached_key $uri; default_type text/y; error_page 404 = @f;"
            f"memcached_pass 127.0.0.1:{port}; }} location @f {{ return 200 fallback; }}"
        )
        answers.append(await side.get("/k%20x"))
    line, fields, *rest = shown(answers[1])
    fields = [field for field in fields if field[0] != "accept-ranges"]  # no parts of a value are given here
    assert shown(answers[0]) == (line, fields, *rest)
    assert got[0] == got[1] == b"get /k%20x\r\n"
