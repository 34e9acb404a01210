from __future__ import annotations

import asyncio
import glob
import gzip
import os
import re
from pathlib import Path

import pytest

from headrace.edge import log
from headrace.edge.memorylog import MemoryLog


async def test_combined_is_the_default(serve):
    site = await serve(
        "http { access_log logs/a.log; server { listen 127.0.0.1:80; location / { return 200 hello; } } }"
    )
    await site.get("/x?y=1", 'User-Agent: a"b\\c\x01', "Referer: http://r/")
    line = site.log("a.log")
    assert re.fullmatch(
        r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET /x\?y=1 HTTP/1\.1" 200 5 '
        r'"http://r/" "a\\x22b\\x5Cc\\x01"\n',
        line,
    )


async def test_formats_conditions_and_off(serve):
    site = await serve(
        """http {
        log_format j escape=json '{"u":"$http_x","n":"$http_nope"}';
        log_format n escape=none '$http_x|$http_nope';
        log_format v '$status $body_bytes_sent $bytes_sent $request_length $request_time $msec $time_iso8601 $connection '
                     '$connection_requests $pid $hostname $request_id $sent_http_x_a $sent_http_content_type $upstream_nope';
        access_log logs/all.log n;
        server { listen 127.0.0.1:80;
            location /j { access_log logs/j.log j; return 204; }
            location /off { access_log off; return 204; }
            location /if { access_log logs/if.log n if=$arg_log; return 204; }
            location / { return 204; }
        } }""".replace(" $upstream_nope", "")
    )
    await site.get("/j", 'X: a"\\\x02é')
    await site.get("/off", "X: off")
    for query in ("", "?log=0", "?log=1"):
        await site.get("/if" + query, "X: " + query)
    await site.get("/", 'X: q"q')
    assert site.log("j.log").encode() == '{"u":"a\\"\\\\\\u0002é","n":""}\n'.encode()
    assert site.log("all.log") == 'q"q|\n'
    assert site.log("if.log") == "?log=1|\n"


async def test_log_variables(serve):
    site = await serve(
        """http {
        log_format v '$status $body_bytes_sent $request_length $request_time $msec $time_iso8601 $connection_requests '
                     '$pid $request_id $sent_http_x_a $sent_http_content_type $request_completion $remote_user';
        access_log logs/v.log v;
        server { listen 127.0.0.1:80; location / { add_header X-A b; return 200 "12345"; } } }"""
    )
    await site.get("/", "Authorization: Basic dTpw")
    status, sent, length, took, msec, iso, number, pid, ident, added, kind, done, user = site.log("v.log").split()
    assert (status, sent, number, added, kind, done, user) == ("200", "5", "1", "b", "text/plain", "OK", "u")
    assert int(length) > 30
    assert re.fullmatch(r"\d+\.\d{3}", took)
    assert re.fullmatch(r"\d{10}\.\d{3}", msec)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", iso)
    assert int(pid) == os.getpid()
    assert re.fullmatch(r"[0-9a-f]{32}", ident)


async def test_buffered_log_is_flushed_at_the_end(serve):
    site = await serve(
        'http { log_format u "$uri"; access_log logs/b.log u buffer=64k; server { listen 127.0.0.1:80; return 204; } }'
    )
    await site.get("/one")
    await site.get("/two")
    assert site.log("b.log") == ""
    await site.gateway.stop(1.0)
    assert site.log("b.log") == "/one\n/two\n"


async def test_compressed_log(serve):
    site = await serve(
        'http { log_format u "$uri"; access_log logs/z.log u gzip=2; server { listen 127.0.0.1:80; return 204; } }'
    )
    await site.get("/one")
    await site.get("/two")
    await site.gateway.stop(1.0)
    assert gzip.decompress((site.prefix / "logs/z.log").read_bytes()) == b"/one\n/two\n"


async def test_a_path_with_variables(serve):
    site = await serve(
        """error_log logs/e.log crit; http { root /; log_format u "$uri"; access_log logs/$arg_to.log u;
        server { listen 127.0.0.1:80; return 204; } }"""
    )
    for target in ("/1?to=a", "/2?to=b", "/3?to=a", "/4?to=no/folder"):
        await site.get(target)
    assert site.log("a.log") == "/1\n/3\n"
    assert site.log("b.log") == "/2\n"
    assert 'logs/no/folder.log" failed (2: No such file or directory) while logging request' in site.log("e.log")


async def test_buffered_log_by_time(serve):
    site = await serve(
        'http { log_format u "$uri"; access_log logs/b.log u buffer=64k flush=20ms; server { listen 127.0.0.1:80; return 204; } }'
    )
    await site.get("/one")
    async with asyncio.timeout(10):
        while not site.log("b.log"):
            await asyncio.sleep(0.01)
    assert site.log("b.log") == "/one\n"


async def test_error_log_line(serve):
    site = await serve(
        "error_log logs/e.log info; http { access_log off; server { listen 127.0.0.1:80; server_name s.example; } }"
    )
    await site.get("/missing", "Referer: http://r/", host="x.example:99")
    assert re.fullmatch(
        rf"\d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d \[error\] {os.getpid()}#\d+: \*\d+ "
        rf'open\(\) "{re.escape(str(site.prefix))}/html/missing" failed \(2: No such file or directory\), '
        r'client: 127\.0\.0\.1, server: s\.example, request: "GET /missing HTTP/1\.1", host: "x\.example:99", '
        r'referrer: "http://r/"\n',
        site.log("e.log"),
    )


async def test_levels_and_several_files(serve):
    site = await serve(
        """error_log logs/main.log;
        http { access_log off; server { listen 127.0.0.1:80; error_log logs/crit.log crit; error_log logs/info.log info;
        location /quiet { error_log logs/quiet.log alert; } location /nf { log_not_found off; } location / { } } }"""
    )
    await site.get("/missing")
    await site.get("/quiet/missing")
    await site.get("/nf/missing")
    assert "missing" not in site.log("crit.log")
    assert site.log("info.log").count("missing") == 2
    assert site.log("quiet.log") == ""


async def test_a_refused_request_is_logged_with_its_reason(serve):
    site = await serve(
        'error_log logs/e.log info; http { log_format s "$status $request"; access_log logs/a.log s; server { listen 127.0.0.1:80; } }'
    )
    await site.raw(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    assert "[info]" in site.log("e.log")
    assert "duplicate header line" in site.log("e.log")
    assert "while reading client request headers, client: 127.0.0.1" in site.log("e.log")
    assert site.log("a.log") == "400 GET / HTTP/1.1\n"


async def test_reopen(serve):
    site = await serve(
        'http { log_format u "$uri"; access_log logs/a.log u; server { listen 127.0.0.1:80; return 204; } }'
    )
    await site.get("/one")
    (site.prefix / "logs/a.log").rename(site.prefix / "logs/a.1")
    await site.get("/two")
    site.gateway.reopen_logs()
    await site.get("/three")
    assert site.log("a.1") == "/one\n/two\n"
    assert site.log("a.log") == "/three\n"


@pytest.fixture
def bridge():
    records = []

    def sink(tag, at, record):
        records.append((tag, at, record))

    log.sinks.append(sink)
    yield records
    log.sinks.remove(sink)


async def test_records_go_to_the_sinks(serve, bridge):
    site = await serve(
        "http { access_log pipeline:web; server { listen 127.0.0.1:80; location / { return 200 hello; } } }"
    )
    await site.get("/a%20b?c=d", "User-Agent: me")
    ((tag, at, record),) = bridge
    assert tag == "web"
    assert at > 1e18
    assert record["status"] == 200
    assert record["request"] == "GET /a%20b?c=d HTTP/1.1"


def test_a_file_opened_at_need_is_made_by_its_first_line(tmp_path):
    logs = log.Logs()
    file = logs.file(str(tmp_path / "logs" / "error.log"), at_need=True)
    logs.open_files()
    assert list(tmp_path.iterdir()) == []
    file.write(b"one\n")
    assert (tmp_path / "logs" / "error.log").read_bytes() == b"one\n"
    file.close()


def test_a_file_that_a_directive_names_too_is_opened_at_once(tmp_path):
    logs = log.Logs()
    path = str(tmp_path / "error.log")
    assert logs.file(path, at_need=True) is logs.file(path)
    logs.open_files()
    assert (tmp_path / "error.log").exists()
    logs.files[path].close()


def test_standard_error_takes_what_a_file_opened_at_need_cannot(tmp_path, capfd):
    (tmp_path / "logs").write_text("in the way")
    file = log.Logs().file(str(tmp_path / "logs" / "error.log"), at_need=True)
    file.write(b"told all the same\n")
    assert capfd.readouterr().err == "told all the same\n"


def test_a_check_makes_nothing_and_takes_a_pipe_without_a_reader(tmp_path):
    logs = log.Logs()
    os.mkfifo(tmp_path / "pipe")
    logs.file(str(tmp_path / "pipe"))
    logs.file(str(tmp_path / "a" / "b" / "c.log"))
    logs.check_files()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


async def test_errors_in_memory(serve):
    site = await serve(
        "http { error_log memory:300 notice; server { listen 127.0.0.1:80; root /nowhere; error_log memory:300 info; } }"
    )
    for number in range(5):
        await site.get(f"/file-{number}")
    found = [path for path in glob.glob("/proc/self/fd/*") if "memfd:error_log" in os.path.realpath(path)]
    assert len(found) == 1
    kept = Path(found[0]).read_bytes()
    assert len(kept) == 300
    assert b"/nowhere/file-4" in kept
    assert b"file-1" not in kept


def test_a_ring_keeps_the_newest():
    ring = MemoryLog(10)
    assert ring.lines() == b""
    for line, kept in (
        (b"abcd\n", b"abcd\n"),
        (b"efgh\n", b"abcd\nefgh\n"),
        (b"ij\n", b"d\nefgh\nij\n"),
        (b"x" * 25, b"x" * 10),
    ):
        ring.write(line)
        assert ring.lines() == kept
    ring.close()
