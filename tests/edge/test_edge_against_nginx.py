"""The same configuration and the same bytes to nginx and to the gateway: the answers must be the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"

pytestmark = [pytest.mark.peer, pytest.mark.skipif(not os.path.exists(NGINX), reason="no nginx here")]

SERVERS = """
  log_format probe '$remote_addr "$request" $request_uri $uri $status $body_bytes_sent '
                   '$connection_requests $host $server_name $request_method $server_protocol $content_length '
                   '$http_cookie $sent_http_location $sent_http_content_type $sent_http_etag $http_range $is_args $arg_a '
                   '$request_filename $document_root $sent_http_x_server $scheme';
  access_log %LOG% probe;
  default_type text/plain;
  server {
    listen 127.0.0.1:%PORT%;
    server_name localhost;
    root html;
    client_max_body_size 20;
    large_client_header_buffers 2 1k;
    add_header X-Server a;
    location / { }
    location = /exact { return 200 "exact\\n"; }
    location /pre { return 200 "pre $uri\\n"; location ~ \\.in$ { return 200 "pre-in\\n"; } }
    location ^~ /noreg { return 200 "noreg\\n"; }
    location ~ \\.re$ { return 200 "re $uri\\n"; }
    location ~* \\.(png|gif)$ { return 200 "img $1\\n"; }
    location /return301 { return 301 /there?a=b; }
    location /return302 { return 302 http://else/x; }
    location /return307 { return 307 $scheme://$host/z; }
    location /return404 { return 404; }
    location /return404t { return 404 "gone\\n"; }
    location /return444 { return 444; }
    location /return201 { return 201; }
    location /return201t { return 201 "made"; }
    location /return204 { return 204; }
    location /return599 { return 599; }
    location /return333 { return 333; }
    location /r413 { return 413; }
    location /r416 { return 416; }
    location /r494 { return 494; }
    location /r497 { return 497; }
    location /r500 { return 500; }
    location /r502 { return 502; }
    location /r503 { return 503; }
    location /url { return http://x.y/z; }
    location /alias/ { alias %ROOT%/html/d/; }
    location ~ ^/ra/(.*)$ { alias %ROOT%/html/$1; }
    location /ep { error_page 404 /page.html; error_page 403 =200 /exact; }
    location /ep2 { error_page 404 = /exact; return 404; }
    location /ep3 { error_page 404 @named; return 404; }
    location /ep4 { error_page 404 http://other/; return 404; }
    location /ep5 { error_page 404 =301 http://other/; return 404; }
    location /ep6 { error_page 500 502 =203 @named; return 502; }
    location /ep7 { error_page 404 /ep8; return 404; }
    location /ep8 { error_page 404 /exact; return 404; }
    location @named { return 200 "named $uri $status\\n"; }
    location /internal { internal; return 200 "no\\n"; }
    location /vars { add_header X-V "$args|$arg_a|$is_args|$query_string|$request_uri|$uri|$document_uri"; return 200 "$request_method $http_user_agent $cookie_c $host $scheme $server_port $server_protocol $content_length $content_type $http_nope ${args}x $remote_addr $server_name $request\\n"; }
    location /tf { try_files $uri $uri/ /d/f.txt; }
    location /tf2 { try_files /nope =403; }
    location /tf3 { try_files /nope /vars?z=$uri; }
    location /tf4 { try_files /nope @named; }
    location /rw { rewrite ^/rw/a/(.*)$ /vars/$1 last; rewrite ^/rw/b/(.*)$ /d/$1 break; rewrite ^/rw/c/(.*)$ /vars?c=$1; rewrite ^/rw/d/(.*)$ /vars?c=$1? last; rewrite ^/rw/e$ /gone redirect; rewrite ^/rw/f/(.*)$ http://q.r/$1 permanent; }
    location /cycle { rewrite ^ /cycle/x last; }
    location /set { set $a 1; if ($arg_q = 2) { set $a 2; } if ($arg_q ~ ^x(.)$) { set $a $1; } if ($arg_q != "") { set $b b; } return 200 "a=$a b=$b\\n"; }
    location /iff { if (-f $document_root/d/f.txt) { return 200 "file\\n"; } return 200 "none\\n"; }
    location /ifh { if ($arg_h) { add_header X-If 1; } add_header X-Out 1; }
    location /brk { set $x 1; break; set $x 2; return 200 "x\\n"; }
    location /types { types { text/x-foo foo; } default_type a/b; }
    location /nodef { default_type ""; return 200 "x"; }
    location /hdr { add_header X-Y y; add_header X-Z z always; return 404; }
    location /hdr2 { add_header X-Y y; return 301 /; }
    location /exp { expires 1h; return 200 "x"; }
    location /expo { expires off; return 200 "x"; }
    location /exe { expires epoch; return 200 "x"; }
    location /exm { expires max; return 200 "x"; }
    location /exn { expires -1; return 200 "x"; }
    location /gz { gzip on; gzip_types text/plain; gzip_min_length 1; gzip_vary on; alias %ROOT%/html/d/f.txt; }
    location /tok { server_tokens off; return 404; }
    location /ka { keepalive_timeout 10 20; return 200 "x"; }
    location /ka0 { keepalive_timeout 0; return 200 "x"; }
    location /norel { absolute_redirect off; return 301 /x; }
    location /nopr { port_in_redirect off; return 301 /x; }
    location /deny { deny all; }
    location /allow { allow 127.0.0.1; deny all; return 200 "x"; }
    location /allowf { allow 127.0.0.1; deny all; }
    location /etagoff { etag off; alias %ROOT%/html/d/f.txt; }
    location /cs { charset utf-8; return 200 "x"; }
    location /bigbody { client_max_body_size 0; return 200 "ok"; }
  }
  server { listen 127.0.0.1:%PORT%; server_name a.example *.wild.example tail.*; location / { return 200 "$server_name|$host\\n"; } }
  server { listen 127.0.0.1:%PORT%; server_name ~^re(?<num>\\d+)\\.example$; location / { return 200 "$num|$server_name\\n"; } }
  server { listen 127.0.0.1:%PORT%; server_name .dot.example; location / { return 200 "$server_name|$uri\\n"; } }
"""

PATHS = [
    "/",
    "/index.html",
    "/d",
    "/d/",
    "/d/f.txt",
    "/nope",
    "/nope/",
    "/exact",
    "/exact/",
    "/pre",
    "/prefix",
    "/pre/x.in",
    "/pre/x.re",
    "/noreg/x.re",
    "/a.re",
    "/x.PNG",
    "/x.gif",
    "/return301",
    "/return302",
    "/return307",
    "/return404",
    "/return404t",
    "/return444",
    "/return201",
    "/return201t",
    "/return204",
    "/return599",
    "/return333",
    "/r413",
    "/r416",
    "/r494",
    "/r497",
    "/r500",
    "/r502",
    "/r503",
    "/url",
    "/alias/f.txt",
    "/alias/",
    "/alias/nope",
    "/ra/d/f.txt",
    "/ep/nope",
    "/ep2",
    "/ep3",
    "/ep4",
    "/ep5",
    "/ep6",
    "/ep7",
    "/ep8",
    "/internal",
    "/vars",
    "/vars?a=1&b=2",
    "/vars?",
    "/vars%20x?a=%20",
    "/tf/nope",
    "/tf2",
    "/tf3?y=1",
    "/tf4",
    "/rw/a/1?o=2",
    "/rw/b/f.txt",
    "/rw/c/7?o=2",
    "/rw/d/7?o=2",
    "/rw/e",
    "/rw/e?x=1",
    "/rw/f/q?x=1",
    "/rw/zzz",
    "/cycle",
    "/set",
    "/set?q=2",
    "/set?q=xY",
    "/iff",
    "/ifh/nope",
    "/ifh/nope?h=1",
    "/brk",
    "/types/x.foo",
    "/types/x.bar",
    "/nodef",
    "/hdr",
    "/hdr2",
    "/exp",
    "/expo",
    "/exe",
    "/exm",
    "/exn",
    "/gz",
    "/tok",
    "/ka",
    "/ka0",
    "/norel",
    "/nopr",
    "/deny",
    "/allow",
    "/allowf",
    "/etagoff",
    "/cs",
    "//exact",
    "/./exact",
    "/a/../exact",
    "/%65xact",
    "/exact%00",
    "/%2e%2e/x",
    "/../x",
    "/pre%2fx",
    "/pre/..%2fexact",
    "/a%zz",
    "/exact#frag",
    "/exact?a#frag",
    "/d/../d//f.txt",
    "/d/./",
    "/d/.",
    "/d/..",
    "/pre+x",
    "/pre%2Bx",
    "/%3f",
    "/%23",
    "/d/%",
]

RAW = {
    "head": b"HEAD /d/f.txt HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "head 404": b"HEAD /nope HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "head return": b"HEAD /exact HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "post file": b"POST /d/f.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    "post return": b"POST /exact HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    "put file": b"PUT /d/f.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    "delete": b"DELETE /d/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "options": b"OPTIONS /d/f.txt HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "1.0": b"GET /exact HTTP/1.0\r\n\r\n",
    "1.0 keep": b"GET /exact HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "1.0 file": b"GET /d/f.txt HTTP/1.0\r\n\r\n",
    "0.9": b"GET /exact\r\n",
    "pipeline": b"GET /exact HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "close": b"GET /exact HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "no host": b"GET /exact HTTP/1.1\r\n\r\n",
    "413": b"POST /exact HTTP/1.1\r\nHost: localhost\r\nContent-Length: 21\r\n\r\n" + b"x" * 21,
    "413 at limit": b"POST /exact HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n" + b"x" * 20,
    "body unlimited": b"POST /bigbody HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n" + b"x" * 50,
    "414": b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "494": b"GET /exact HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"c" * 2000 + b"\r\n\r\n",
    "range": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=2-4\r\n\r\n",
    "range end": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=-3\r\n\r\n",
    "range open": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=3-\r\n\r\n",
    "range bad": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=90-\r\n\r\n",
    "range nonsense": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=a-b\r\n\r\n",
    "range other unit": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: lines=1-2\r\n\r\n",
    "range reversed": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=5-2\r\n\r\n",
    "range two": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1,4-5\r\n\r\n",
    "range past": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1000\r\n\r\n",
    "range head": b"HEAD /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=2-4\r\n\r\n",
    "range if": b'GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=2-4\r\nIf-Range: "x"\r\n\r\n',
    "ims": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT\r\n\r\n",
    "ims old": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: Fri, 31 Dec 1999 00:00:00 GMT\r\n\r\n",
    "ims bad": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: yesterday\r\n\r\n",
    "inm": b'GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "x", "386d4380-b"\r\n\r\n',
    "inm star": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\n\r\n",
    "inm other": b'GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "x"\r\n\r\n',
    "im": b'GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Match: "x"\r\n\r\n',
    "ius": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Unmodified-Since: Fri, 31 Dec 1999 00:00:00 GMT\r\n\r\n",
    "gzip": b"GET /gz HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
    "gzip q0": b"GET /gz HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip;q=0\r\n\r\n",
    "gzip head": b"HEAD /gz HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
    "gzip via": b"GET /gz HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nVia: x\r\n\r\n",
    "vars": b"GET /vars?a=1 HTTP/1.1\r\nHost: LocalHost.:80\r\nUser-Agent: ua\r\nCookie: b=1; c=2\r\nCookie: d=3\r\nContent-Type: a/b\r\n\r\n",
    "host a": b"GET / HTTP/1.1\r\nHost: A.Example\r\n\r\n",
    "host port": b"GET / HTTP/1.1\r\nHost: a.example:99\r\n\r\n",
    "host wild": b"GET / HTTP/1.1\r\nHost: x.y.wild.example\r\n\r\n",
    "host wild bare": b"GET / HTTP/1.1\r\nHost: wild.example\r\n\r\n",
    "host tail": b"GET / HTTP/1.1\r\nHost: tail.com.org\r\n\r\n",
    "host re": b"GET / HTTP/1.1\r\nHost: re42.example\r\n\r\n",
    "host dot": b"GET /a/b HTTP/1.1\r\nHost: dot.example\r\n\r\n",
    "host dot sub": b"GET /a/./../b HTTP/1.1\r\nHost: x.dot.example\r\n\r\n",
    "host absolute": b"GET http://a.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "empty": b"",
}


def normal(answer: bytes, port: int) -> bytes:
    answer = re.sub(rb"Date: [^\r]*", b"Date: now", answer)
    answer = re.sub(rb"Expires: (?!Thu)[^\r]*", b"Expires: then", answer)
    answer = re.sub(rb"nginx/[0-9.]+", b"nginx/x", answer)
    answer = re.sub(rb"Content-Length: \d+\r\n(?=(?:[^\r]+\r\n)*\r\n<html>)", b"Content-Length: page\r\n", answer)
    for boundary in set(re.findall(rb"boundary=(\d{20})", answer)):
        answer = answer.replace(boundary, b"BOUNDARY")
    return answer.replace(b"%d" % port, b"PORT")


@contextlib.contextmanager
def nginx(root: Path, servers: str):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conf = f"daemon off; master_process off; error_log logs/peer.log info; pid peer.pid; events {{}}\nhttp {{ client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; {servers} }}"
    (root / "peer.conf").write_text(conf.replace("%PORT%", str(port)).replace("%ROOT%", str(root)))
    process = subprocess.Popen([NGINX, "-p", str(root), "-c", "peer.conf", "-e", "logs/peer.log"])
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def site(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "html" / "d").mkdir(parents=True)
    for name, text in {"index.html": "<p>index</p>\n", "d/f.txt": "0123456789\n", "page.html": "page\n"}.items():
        file = tmp_path / "html" / name
        file.write_text(text)
        os.utime(file, (946684800, 946684800))
    (tmp_path / "html").chmod(0o755)
    return tmp_path


def requests():
    yield from RAW.items()
    for path in PATHS:
        yield path, b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode()


def of_both(text: str, root: Path) -> str:
    return text.replace("%ROOT%", str(root))


async def test_answers_and_logs_are_those_of_nginx(serve, site):
    servers = of_both(SERVERS, site)
    ours = await serve(
        "error_log logs/e.log info; events {} http { "
        + servers.replace("%PORT%", "80").replace("%LOG%", "logs/a.log")
        + " }"
    )
    different = []
    with nginx(site, servers.replace("%LOG%", "logs/peer-a.log")) as port:
        for name, data in requests():
            want = normal(await ours.raw(data, port=port), port)
            got = normal(await ours.raw(data), ours.port)
            if want != got:
                different.append(f"--- {name}\nwant {want!r}\ngot  {got!r}")
        async with asyncio.timeout(10):
            while lines(site / "logs/peer-a.log", port).total() < lines(site / "logs/a.log", ours.port).total():
                await asyncio.sleep(0.01)
        for theirs, own in (("peer-a.log", "a.log"), ("peer.log", "e.log")):
            want, got = lines(site / "logs" / theirs, port), lines(site / "logs" / own, ours.port)
            if want != got:
                different.append(f"--- {own}\nmissing {want - got}\nextra   {got - want}")
    assert not different, "\n".join(different)


def lines(path: Path, port: int) -> Counter[bytes]:
    """Lines of a log without what differs by nature: time, process and connection; of an error log from warn up."""
    text = normal(path.read_bytes(), port)
    if path.name not in {"a.log", "peer-a.log"}:
        return Counter(re.findall(rb"\[(?:error|crit|warn|alert)\] \d+#\d+: \*\d+ (.*)", text))
    return Counter(line for line in text.splitlines() if b"aaaaaa" not in line)
