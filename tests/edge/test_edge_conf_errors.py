"""Configurations that are wrong: the same message at the same place as nginx -t, and nothing accepted in silence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from headrace.conf.files import Files
from headrace.conf.nginx import parse
from headrace.conf.params import Problems
from headrace.edge.build import build
from headrace.edge.shipped import NAMES, read_file
from headrace.errors import ConfError

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
needs_nginx = pytest.mark.skipif(not os.path.exists(NGINX), reason="no nginx here")

# Each is put where %s stands: main, http, server or location level.
MAIN = [
    "worker_processes x;",
    "worker_processes 1; worker_processes 2;",
    "daemon maybe;",
    "user a b c;",
    "error_log logs/x verbose;",
    "foo bar;",
    "listen 80;",
    "pid;",
    "events {}",
    "http {}",
]
HTTP = [
    "server { listen 80 nope; }",
    "server { listen a.b.invalid:80; }",
    "server { listen 127.0.0.1:99999; }",
    "server { listen 127.0.0.1:0; }",
    "server { listen 80; listen 80; }",
    "server { listen 81 default_server; } server { listen 81 default_server; }",
    "server { listen 80 backlog=x; }",
    "server { listen unix:; }",
    "server { server_name ~; }",
    'server { server_name "a*b"; }',
    "server { server_name *.; }",
    "server { server_name a..b; }",
    "log_format combined '$uri';",
    "log_format a '$uri'; log_format a '$args';",
    "log_format a '$nope_at_all';",
    "access_log logs/a nope;",
    "access_log logs/a combined buffer=x;",
    "access_log logs/a combined flush=1s;",
    "access_log logs/$host combined buffer=1k;",
    "access_log logs/a combined gzip=10;",
    "access_log off x;",
    "keepalive_timeout x;",
    "keepalive_timeout 1 x;",
    "keepalive_requests x;",
    "client_max_body_size 1x;",
    "client_max_body_size 1m 2m;",
    "client_max_body_size 1m; client_max_body_size 1m;",
    "large_client_header_buffers x 1k;",
    "sendfile maybe;",
    "gzip_comp_level 10;",
    "gzip_http_version 2;",
    "gzip_proxied nope;",
    "ssl_protocols nope;",
    "types { a/b x; } types { c/d y; } location / { }",
    "error_page 200 /x;",
    "error_page 404;",
    "error_page 404 =x /x;",
    "error_page 600 /x;",
    "error_page 499 /x;",
    "server_tokens x;",
    "merge_slashes x;",
    "root a; root b;",
    "deny nope;",
]
SERVER = [
    "location / { } location / { }",
    "location = / { } location = / { }",
    "location / { } location ^~ / { }",
    "location ~ a { } location ~ a { }",
    "location ~ ( { }",
    "location nope / { }",
    "location / a b { }",
    "location @a { location /b { } }",
    "location = /a { location /a { } }",
    "location /a { location /b { } }",
    "location /a { location @b { } }",
    "location @a { } location @a { }",
    "try_files a;",
    "try_files a =x;",
    "return;",
    "return x;",
    "return 1000;",
    "return 200 a b;",
    "set a b;",
    "set $ b;",
    "set $host b;",
    "set $x $y;",
    "rewrite a;",
    "rewrite ( b;",
    "rewrite a b c;",
    "if ($x { }",
    "if x { }",
    "if ($host = ) { }",
    "if ($host > 1) { }",
    "if ($host ~ ( ) { }",
    "if ($nope) { }",
    "if (-z x) { }",
    "internal;",
    "alias x;",
    "index;",
    'add_header "$x";',
    "add_header a b c;",
    "expires x;",
    "expires @25h;",
    "etag x;",
    "root;",
    "lingering_close x;",
    "listen 80 ssl;",
    "location / { listen 80; }",
    "location / { root a; alias b; }",
    "location / { alias a; root b; }",
    "location @x { alias b; }",
    "location / { internal x; }",
    "location / { proxy_nope on; }",
    'return 200 "${uri";',
    'return 200 "$";',
    'return 200 "a$ b";',
    "break x;",
    "server { }",
    "access_log logs/x combined if=$nope;",
]


def place(kind: str, text: str) -> str:
    if kind == "main":
        return f"{text}\n" + ("" if "events" in text else "events {}\n")
    if kind == "http":
        return f"events {{}}\nhttp {{\n{text}\n}}\n"
    return f"events {{}}\nhttp {{\nserver {{\n{text}\n}}\n}}\n"


CASES = [(kind, text) for kind, texts in (("main", MAIN), ("http", HTTP), ("server", SERVER)) for text in texts]


def ours(build_conf, text: str) -> str | None:
    try:
        _, problems = build_conf(text)
    except Exception as error:  # a syntax error
        return str(error)
    if not problems.errors:
        return None
    error = problems.errors[0]
    at = f" in nginx.conf:{error.place.line}" if error.place else ""
    return f"{error.message}{at}"


def theirs(folder, text: str) -> str | None:
    (folder / "nginx.conf").write_text(text)
    done = subprocess.run(
        [NGINX, "-t", "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", "-q"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"\[emerg\] (?:\d+#\d+: )?(.*)", done.stderr)
    if found is None:
        assert done.returncode == 0, done.stderr
        return None
    return re.sub(r" in \S*nginx\.conf", " in nginx.conf", found.group(1))


PCRE = re.compile(r"pcre2?_compile\(\) failed: .* in ")
# Where nginx names no place, or its text comes from a library, ours may say more.
LOOSE = {"set $x $y;", "if ($nope) { }", "log_format a '$nope_at_all';", "access_log logs/x combined if=$nope;"}


@needs_nginx
@pytest.mark.peer
@pytest.mark.parametrize(("kind", "text"), CASES, ids=[f"{kind}: {text}" for kind, text in CASES])
def test_same_error_as_nginx(build_conf, tmp_path, kind, text):
    (tmp_path / "logs").mkdir()
    conf = place(kind, text)
    want, got = theirs(tmp_path, conf), ours(build_conf, conf)
    if want and (text in LOOSE or "pcre" in want):
        assert got is not None
        assert PCRE.sub("", want).split(" in nginx.conf")[0].split('"')[0] in (
            PCRE.sub("", got) if text not in LOOSE else got
        )
        return
    assert got == want


RIGHT = {"events {}", "http {}"}
"""With these there is no error in ours, or only a warning."""
WARNED = {
    'server { server_name "a*b"; }',
    "server { server_name a..b; }",
    "location ~ a { } location ~ a { }",
    "location @a { } location @a { }",
}
OTHERS = "gzip_comp_level 77;\nserver { listen 8111; foo 1; location /x { proxy_pass http://x; } }\n"


@pytest.mark.parametrize(("kind", "text"), CASES, ids=[f"{kind}: {text}" for kind, text in CASES])
def test_an_error_has_no_consequences_and_hides_no_other(build_conf, kind, text):
    def errors(conf):
        found = build_conf(conf)[1].findings()
        return [error.message for level, error in found if level == "error"]

    try:
        alone = errors(place(kind, text))
    except ConfError:
        return  # a syntax error ends it
    assert len(alone) == (0 if text in RIGHT | WARNED else 1)
    if kind != "main":
        among = errors(place(kind, text).replace("http {\n", "http {\n" + OTHERS, 1))
        assert len(among) == len(alone) + 3
        assert set(alone) <= set(among)


REFUSED = {
    "http": [
        "server { listen 80 quic; }",
        "error_log memory:x;",
        "gzip_disable degradation;",
        "upstream x { server a; }",
        "server { location / { proxy_pass http://x; } }",
    ]
}


@pytest.mark.parametrize("text", REFUSED["http"])
def test_what_is_not_built_is_refused(build_conf, text):
    assert ours(build_conf, place("http", text)) is not None


def test_stock_file_of_debian(build_conf, tmp_path):
    """Debian's own nginx.conf, its directives as they are (paths apart)."""
    gateway, problems = build_conf(
        """
        user www-data; worker_processes auto; pid /run/nginx.pid;
        events { worker_connections 768; }
        http {
            sendfile on; tcp_nopush on; types_hash_max_size 2048;
            default_type application/octet-stream;
            ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
            ssl_prefer_server_ciphers on;
            access_log /tmp/access.log;
            gzip on;
            server { listen 80 default_server; listen [::]:80 default_server; root /var/www/html;
                     index index.html index.htm; server_name _; location / { try_files $uri $uri/ =404; } }
        }
        """
    )
    assert [error.message for error in problems.errors] == []
    assert [warning.message for warning in problems.warnings] == [
        '"tcp_nopush" and "types_hash_max_size" mean nothing here: their values are not used'
    ]
    assert gateway.main.user == ("www-data", None)
    assert gateway.main.worker_processes >= 1
    assert [spec.text for spec in gateway.listens] == ["0.0.0.0:80", "[::]:80"]


def test_one_notice_names_all_inert_directives(build_conf):
    _, problems = build_conf(
        "thread_pool a threads=1; events {} http { aio on; open_file_cache off; server { open_file_cache off; } }"
    )
    (warning,) = problems.warnings
    assert warning.message == (
        '"thread_pool", "aio" and "open_file_cache" mean nothing here: their values are not used'
    )
    assert warning.place.line == 1


def test_build_opens_nothing(build_conf, tmp_path):
    build_conf("error_log logs/e.log; events {} http { server { listen 80; access_log logs/a.log; } }")
    assert not (tmp_path / "logs").exists()


def test_no_events_section(errors):
    assert errors("http {}") == ['no "events" section in configuration']


def test_shipped_files_stand_in(tmp_path):
    tree = parse(
        "events {} http { include mime.types; server { listen 80; } }",
        str(tmp_path / "nginx.conf"),
        files=Files(read_file),
    )
    gateway = build(tree, prefix=str(tmp_path), problems=Problems())
    assert gateway.servers[0].location.content_type_of(b"/a.svg") == b"image/svg+xml"
    assert gateway.servers[0].location.content_type_of(b"/a.js") == b"application/javascript"
    (tmp_path / "mime.types").write_text("types { x/y svg; }")
    tree = parse(
        "events {} http { include mime.types; server { listen 80; } }",
        str(tmp_path / "nginx.conf"),
        files=Files(read_file),
    )
    gateway = build(tree, prefix=str(tmp_path), problems=Problems())
    assert gateway.servers[0].location.content_type_of(b"/a.svg") == b"x/y"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_shipped_files_are_configurations(tmp_path, name):
    tree = parse(f"include {name};", str(tmp_path / "nginx.conf"), files=Files(read_file))
    assert tree
