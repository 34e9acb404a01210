"""The memc module: what is sent for each command, and what becomes of memcached's answers."""

from __future__ import annotations

import re

import pytest
from test_cgi_and_memcached import talker
from test_proxy_pass import shown

from headrace.edge.upstream.memc import SimpleReader
from headrace.edge.upstream.reply import BadReply
from headrace.errors import ConfError

VALUES = [
    # settings, method, body, answer of memcached -> what it is sent, the status, the body
    ("", "GET", b"", b"VALUE k 7 5\r\nhello\r\nEND\r\n", b"get k\r\n", "200", b"hello"),
    ("", "GET", b"", b"END\r\n", b"get k\r\n", "404", None),
    ("", "PUT", b"abc", b"STORED\r\n", b"set k 0 0 3\r\nabc\r\n", "201", b"STORED\r\n"),
    ("", "POST", b"abc", b"NOT_STORED\r\n", b"add k 0 0 3\r\nabc\r\n", "200", b"NOT_STORED\r\n"),
    ("", "DELETE", b"", b"DELETED\r\n", b"delete k\r\n", "200", b"DELETED\r\n"),
    ("", "DELETE", b"", b"NOT_FOUND\r\n", b"delete k\r\n", "404", None),
    ("set $memc_exptime 9;", "DELETE", b"", b"DELETED\r\n", b"delete k 9\r\n", "200", b"DELETED\r\n"),
    (
        "set $memc_cmd replace; set $memc_value v; set $memc_flags 3; set $memc_exptime 4;",
        "GET", b"", b"EXISTS\r\n", b"replace k 3 4 1\r\nv\r\n", "200", b"EXISTS\r\n",
    ),
    ("set $memc_cmd append; set $memc_value '';", "PUT", b"x", b"STORED\r\n", b"append k 0 0 0\r\n\r\n", "201", None),
    ("set $memc_cmd incr; set $memc_value 2;", "GET", b"", b"12\r\n", b"incr k 2\r\n", "201", b"12\r\n"),
    ("set $memc_cmd decr; set $memc_value 2;", "GET", b"", b"NOT_FOUND\r\n", b"decr k 2\r\n", "404", None),
    ("set $memc_cmd flush_all;", "GET", b"", b"OK\r\n", b"flush_all\r\n", "200", b"OK\r\n"),
    ("set $memc_cmd flush_all; set $memc_exptime 3;", "GET", b"", b"OK\r\n", b"flush_all 3\r\n", "200", b"OK\r\n"),
    ("set $memc_cmd version;", "GET", b"", b"VERSION 1.6\r\n", b"version\r\n", "200", b"VERSION 1.6\r\n"),
    ("set $memc_cmd stats;", "GET", b"", b"STAT a 1\r\nSTAT b 2\r\nEND\r\n", b"stats\r\n", "200", None),
    ("set $memc_cmd stats;", "GET", b"", b"SERVER_ERROR no\r\n", b"stats\r\n", "502", b"SERVER_ERROR no\r\n"),
    ("set $memc_cmd version;", "GET", b"", b"what\r\n", b"version\r\n", "502", b""),
]  # fmt: skip


@pytest.mark.parametrize(("code", "method", "body", "reply", "asked", "status", "text"), VALUES)
async def test_commands(ours, bare, code, method, body, reply, asked, status, text):
    got: list[bytes] = []
    port = await talker(bare, reply, got)
    await ours.start(f"location / {{ set $memc_key k; {code} memc_pass 127.0.0.1:{port}; }}")
    line, _, answer, _ = shown(await ours.get("/x", method=method, body=body))
    assert (got, line.split()[1]) == ([asked], status)
    if text is not None:
        assert answer == text


async def test_the_flags_are_a_variable_and_a_date(ours, bare):
    got: list[bytes] = []
    port = await talker(bare, b"VALUE a%20b 86400 1\r\nx\r\nEND\r\n", got)
    await ours.start(
        "location / { set $memc_key 'a b'; add_header X-Flags $memc_flags; memc_flags_to_last_modified on;"
        f"memc_pass 127.0.0.1:{port}; }}"
    )
    _, fields, *_ = shown(await ours.get("/x"))
    assert dict(fields)["x-flags"] == "86400"
    assert dict(fields)["last-modified"] == "Fri, 02 Jan 1970 00:00:00 GMT"


@pytest.mark.parametrize(
    ("code", "method", "status", "said"),
    [
        ("", "PATCH", "400", "ngx_memc: $memc_cmd variable not found for HTTP PATCH requests"),
        ("set $memc_cmd touch;", "GET", "400", 'ngx_memc: unknown $memc_cmd "touch"'),
        ("memc_cmds_allowed get set;", "DELETE", "403", 'ngx_memc: memcached command "delete" not allowed'),
        ("set $memc_exptime 1s;", "PUT", "400", 'variable "$memc_exptime" takes invalid value: 1s'),
        ("set $memc_flags -1;", "PUT", "400", 'variable "$memc_flags" takes invalid value: -1'),
        ("set $memc_cmd incr;", "GET", "400", 'the "$memc_value" variable is required for command "incr"'),
        ("set $memc_cmd incr; set $memc_value x;", "GET", "400", 'variable "$memc_value" is invalid for incr/decr: x'),
        ("set $memc_key '';", "GET", "500", 'the "$memc_key" variable is not set'),
    ],
)
async def test_what_is_refused(ours, code, method, status, said):
    await ours.start(f"location / {{ set $memc_key k; {code} memc_pass 127.0.0.1:1; }}")
    line, *_ = shown(await ours.get("/x", method=method, body=b""))
    assert line.split()[1] == status
    assert said in ours.log()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("memc_pass 127.0.0.1:1; memc_pass 127.0.0.1:1;", '"memc_pass" directive is duplicate'),
        ("memc_pass nowhere;", 'no port in upstream "nowhere"'),
        ("memc_cmds_allowed get touch;", 'unknown command "touch"'),
        ("memc_next_upstream http_404;", 'invalid value "http_404"'),
    ],
)
async def test_what_the_configuration_may_not_say(ours, code, message):
    with pytest.raises(ConfError, match=re.escape(message)):
        await ours.start(f"location / {{ {code} }}")


def test_answers_come_in_pieces():
    reader = SimpleReader(b"stats", 4096)
    answer = b"STAT a 1\r\nSTAT b 2\r\nEND\r\n"
    body = b"".join(b"".join(reader.feed(answer[i : i + 1])) for i in range(len(answer)))
    assert (body, reader.done, reader.keep_alive) == (answer, True, True)
    with pytest.raises(BadReply):
        SimpleReader(b"version", 4096).eof()
    with pytest.raises(BadReply, match="too big"):
        SimpleReader(b"stats", 10).feed(b"STAT abcdefghijklmnop")
