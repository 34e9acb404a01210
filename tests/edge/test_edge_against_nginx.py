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


def requests(raw: dict[str, bytes], paths: list[str]) -> list[tuple[str, bytes]]:
    plain = [(path, b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode()) for path in paths]
    return [*raw.items(), *plain]


MERGED = r"""
  log_format probe '$request $uri $status $body_bytes_sent';
  access_log %LOG% probe;
  add_header X-Http h;
  index first.html index.html;
  error_page 404 /http404;
  types { text/html html; text/x-q q; application/x-n ""; }
  server {
    listen 127.0.0.1:%PORT%;
    root %ROOT%/html;
    set $who server;
    set $mode $arg_mode;
    if ($arg_stop) { return 403 "stopped $arg_stop\n"; }
    if ($arg_go = there) { rewrite ^/(.*)$ /there/$1; }
    if ($request_method = PATCH) { set $who patch; }
    rewrite ^/old/(.*)$ /new/$1 last;
    rewrite ^/older/(?<rest>.*)$ /new/$rest?r=$rest;
    rewrite ^/moved$ /d/ permanent;
    rewrite ^/sch$ $scheme://h/x redirect;
    location = /http404 { return 404 "http404 $uri $request_uri\n"; }
    location /there { return 200 "there $uri $args\n"; }
    location /new { return 200 "new $uri $args $who\n"; }
    location /nest { root %ROOT%/html/d; add_header X-Nest n; location /nest/in { } location /nest/own { add_header X-Own o; return 200 "o"; } location ~ ^/nest/r/(.*)$ { return 200 "r $1\n"; } }
    location /al/ { alias %ROOT%/html/; location ~ \.txt$ { add_header X-Txt 1; } location /al/d/ { add_header X-D 1; } }
    location ~ ^/cap/(\w+)/(\w+)?$ { return 200 "$1-$2-$3-$who\n"; }
    location ~ ^/php/(?<script>.+\.php)(?<info>/.*)?$ { return 200 "$script|$info|$1|$2\n"; }
    location ~ ^/va/(.*)$ { root %ROOT%/$1; try_files /f.txt /html/index.html =404; }
    location /vroot { root %ROOT%/$arg_r; try_files /d/f.txt /page.html =410; }
    location /dir { try_files $uri/ /d/ =404; }
    location /dirs { alias %ROOT%/html/d; try_files "" /f.txt =404; }
    location /abs { index /d/f.txt; }
    location /abs/ { alias %ROOT%/html/d/; index none.html /page.html; }
    location /ni/ { alias %ROOT%/html/d/; index none.html; }
    location /nd/ { alias %ROOT%/nowhere/; }
    location /e1 { error_page 404 /e2; return 404; }
    location /e2 { error_page 410 /page.html; return 410; }
    location /e3 { recursive_error_pages on; error_page 404 /e4; return 404; }
    location /e4 { recursive_error_pages on; error_page 410 /page.html; return 410; }
    location /e5 { error_page 404 =200 /page.html; }
    location /e6 { error_page 405 =200 $uri.x; error_page 403 = @e6; deny all; }
    location @e6 { return 200 "e6 $status\n"; }
    location /e7 { error_page 404 /e7; }
    location /e8 { recursive_error_pages on; error_page 404 /e8; }
    location /e9 { error_page 500 502 503 /page.html?x=1; return 502; }
    location /e10 { error_page 400 401 402 404 $scheme://h/$uri?$args; return 404; }
    location /i1 { if ($arg_a) { return 201 "a"; } if ($arg_b) { break; } set $who later; return 200 "$who\n"; }
    location /i2 { set $v 0; if ($arg_a = 1) { set $v 1; add_header X-A 1; } if ($arg_b = 1) { set $v 2; add_header X-B 1; } add_header X-V $v; }
    location /i3 { if (!-e $request_filename) { rewrite ^ /there/i3?q=1; } }
    location /i4 { if (-d $request_filename) { return 200 "dir\n"; } if (-x $request_filename) { return 200 "exec\n"; } return 200 "neither\n"; }
    location /i5 { if ($http_user_agent !~* (curl|wget)) { return 200 "other $1\n"; } return 200 "tool\n"; }
    location /sa { set $args "z=1&$args"; rewrite ^ /there/sa break; return 200 "$uri $args $arg_z $query_string\n"; }
    location /rb { rewrite ^/rb/(.*)$ /d/$1 break; }
    location /rl { rewrite ^/rl/(.*)$ /rb/$1 last; return 200 "not here"; }
    location /rr { rewrite ^/rr/(.*)$ /$1 redirect; }
    location /rq { rewrite ^/rq/(.*)$ /there?a=$1&b; }
    location /enc { rewrite ^/enc/(.*)$ /there/$1?q=$1 redirect; }
    location /ct { default_type text/x-d; location /ct/none { types { } default_type text/plain; return 200 "x"; } return 200 "x"; }
    location /always { add_header X-A a always; add_header X-B b; return 500; }
    location /empty { add_header X-E $arg_none; add_header X-F "f$arg_none"; return 200; }
    location /exp { expires 1d; add_header Cache-Control public; }
    location /expmod { expires modified +1h; }
    location /cs { charset utf-8; }
    location /esc { return 200 "a\tb\n\"c\" {x} ${uri}y $uri-z\n"; }
    location /big { return 200 "$http_x_a $http_x_b $http_cookie $cookie_a $cookie_B $cookie_c $content_length\n"; }
    location "/quo ted" { return 200 "quoted\n"; }
    location /lim { client_max_body_size 5; location /lim/more { client_max_body_size 10; return 200 "m"; } return 200 "l"; }
    location /sn { server_name_in_redirect on; return 301 /x; }
    location /post { error_page 405 =200 /page.html; }
    location /gz { gzip on; gzip_min_length 1; gzip_types *; }
    location /gzp { gzip on; gzip_proxied no-cache auth; gzip_min_length 1; gzip_types *; alias %ROOT%/html/d/f.txt; add_header Cache-Control no-cache; }
    location /gz9 { gzip on; gzip_http_version 1.0; gzip_min_length 1; gzip_types *; alias %ROOT%/html/d/f.txt; }
    location /if_only { if ($arg_x) { expires 1h; } }
  }
  server { listen 127.0.0.1:%PORT%; server_name tokens; server_tokens off; location / { return 404; } location /b { server_tokens build; return 200 "b"; } }
  server { listen 127.0.0.1:%PORT%; server_name bare; }
  server { listen 127.0.0.1:%PORT%; server_name ret; return 200 "server return $uri\n"; }
  server { listen 127.0.0.1:%PORT%; server_name tf; root %ROOT%/html; try_files $uri /d/f.txt =404; }
"""

MERGED_PATHS = [
    "/",
    "/nope",
    "/d",
    "/d/",
    "/d/f.txt",
    "/old/a",
    "/older/b?x=1",
    "/moved",
    "/moved?x=1",
    "/sch",
    "/sch?a",
    "/there/x",
    "/?stop=1",
    "/q?go=there",
    "/a/b?go=there&c=d",
    "/nest",
    "/nest/",
    "/nest/in/x",
    "/nest/own",
    "/nest/r/abc",
    "/al",
    "/al/",
    "/al/d/f.txt",
    "/al/d/",
    "/al/index.html",
    "/cap/a/b",
    "/cap/a/",
    "/cap/a",
    "/php/a.php/b/c",
    "/php/a.php",
    "/php/x",
    "/va/html/d",
    "/va/nope",
    "/vroot?r=html",
    "/vroot?r=no",
    "/dir/d",
    "/dir",
    "/dirs",
    "/abs",
    "/abs/",
    "/ni/",
    "/nd/",
    "/nd/x",
    "/e1",
    "/e2",
    "/e3",
    "/e4",
    "/e5",
    "/e5/x",
    "/e6",
    "/e7",
    "/e8",
    "/e9",
    "/e10?a=b",
    "/i1",
    "/i1?a=1",
    "/i1?b=1",
    "/i2",
    "/i2?a=1",
    "/i2?a=1&b=1",
    "/i2?b=1",
    "/i3",
    "/i3/x?y=1",
    "/i4",
    "/i5",
    "/sa?x=1",
    "/rb/f.txt",
    "/rl/f.txt",
    "/rr/x",
    "/rr/x?y=1",
    "/rq/1",
    "/rq/1?o=2",
    "/enc/a%20b",
    "/enc/a+b%26c",
    "/ct",
    "/ct/none",
    "/ct/x.html",
    "/ct/x.q",
    "/always",
    "/empty",
    "/exp",
    "/exp/",
    "/expmod",
    "/cs",
    "/esc",
    "/big",
    "/quo%20ted",
    "/lim",
    "/lim/more",
    "/sn",
    "/post",
    "/gz",
    "/gz/",
    "/gzp",
    "/gz9",
    "/if_only?x=1",
    "/if_only",
    "/http404",
    "/page.html?a",
    "/d/f.txt/",
    "/d/f.txt/x",
    "/index.html/",
    "/%e4%b8%ad",
    "/d%2ff.txt",
    "/D/F.TXT",
]

MERGED_RAW = {
    "agent": b"GET /i5 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: CURL/8\r\n\r\n",
    "patch": b"PATCH /new HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "post error page": b"POST /post HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab",
    "head error page": b"HEAD /e5 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "post 404 page": b"POST /e5 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab",
    "many fields": b"GET /big HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\nX_B: 3\r\nCookie: a=1; b=2;c=3\r\nCookie: a=4\r\n\r\n",
    "limit": b"POST /lim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nabcdef",
    "limit nested": b"POST /lim/more HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nabcdef",
    "limit chunked": b"POST /lim/more HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n",
    "gzip page": b"GET /gz/nope HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
    "gzip via no-cache": b"GET /gzp HTTP/1.1\r\nHost: localhost\r\nVia: x\r\nAccept-Encoding: gzip\r\n\r\n",
    "gzip 1.0": b"GET /gz9 HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n",
    "gzip range": b"GET /gz9 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-2\r\nAccept-Encoding: gzip\r\n\r\n",
    "gzip off range": b"GET /gz9 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-2\r\n\r\n",
    "gzip 304": b'GET /gz9 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "386d4380-b"\r\nAccept-Encoding: gzip\r\n\r\n',
    "gzip weak 304": b'GET /gz9 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: W/"386d4380-b"\r\nAccept-Encoding: gzip\r\n\r\n',
    "tokens": b"GET / HTTP/1.1\r\nHost: tokens\r\n\r\n",
    "tokens bad": b"GET / HTTP/1.1\r\nHost: tokens\r\nContent-Length: x\r\n\r\n",
    "bare": b"GET / HTTP/1.1\r\nHost: bare\r\n\r\n",
    "bare file": b"GET /page.html HTTP/1.1\r\nHost: bare\r\n\r\n",
    "server return": b"GET /x HTTP/1.1\r\nHost: ret\r\n\r\n",
    "server try_files": b"GET /x HTTP/1.1\r\nHost: tf\r\n\r\n",
    "server try_files dir": b"GET /d HTTP/1.1\r\nHost: tf\r\n\r\n",
    "bad version": b"GET / HTTP/2.1\r\nHost: a\r\n\r\n",
    "bad header": b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header: x\r\n\r\n",
    "dates": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT; length=1\r\n\r\n",
    "dates 850": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: Saturday, 01-Jan-00 00:00:00 GMT\r\n\r\n",
    "dates asctime": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: Sat Jan  1 00:00:00 2000\r\n\r\n",
    "range blanks": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes= 1 - 2 , 4-4\r\n\r\n",
    "range overlapping": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-8,0-8\r\n\r\n",
    "range some": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1,50-60\r\n\r\n",
    "range empty": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=\r\n\r\n",
    "range zero": b"GET /d/f.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=-0\r\n\r\n",
}


@pytest.mark.parametrize(
    ("text", "sent"),
    [(SERVERS, requests(RAW, PATHS)), (MERGED, requests(MERGED_RAW, MERGED_PATHS))],
    ids=["core", "merged"],
)
async def test_answers_and_logs_are_those_of_nginx(serve, site, text, sent):
    servers = text.replace("%ROOT%", str(site))
    ours = await serve(
        "error_log logs/e.log info; events {} http { "
        + servers.replace("%PORT%", "80").replace("%LOG%", "logs/a.log")
        + " }"
    )
    different = []
    with nginx(site, servers.replace("%LOG%", "logs/peer-a.log")) as port:
        for name, data in sent:
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
    # Of a head that was refused, nginx logs an absent or an empty URI, and a part of one that is too long.
    text = text.replace(b" - 505 ", b"  505 ")
    return Counter(line for line in text.splitlines() if b"aaaaaa" not in line)
