"""Which location, which server: tables. Answers of locations name themselves, so the order of search shows."""

from __future__ import annotations

import pytest

from headrace.edge.request import Request
from headrace.edge.servernames import NameTable, ServerName

LOCATIONS = r"""
location / { }
location = / { }
location /docs/ { location ~ \.pdf$ { } location /docs/deep/ { } location = /docs/exact { } }
location ^~ /img/ { location ~ \.in$ { } }
location ~* \.(gif|jpg)$ { }
location ~ ^/u/(?<who>\w+) { location ~ /x$ { } }
location ~ \.gif$ { }
location /docsx { }
location @named { }
"""

TABLE = [
    ("/", "exact", "/"),
    ("/index", "prefix", "/"),
    ("/docs/a", "prefix", "/docs/"),
    ("/docs/a.pdf", "regex", r"\.pdf$"),
    ("/docs/deep/a", "prefix", "/docs/deep/"),
    ("/docs/deep/a.pdf", "regex", r"\.pdf$"),
    ("/docs/exact", "exact", "/docs/exact"),
    ("/docs/a.gif", "regex", r"\.(gif|jpg)$"),
    ("/docs", "prefix", "/"),
    ("/docsxy", "prefix", "/docsx"),
    ("/img/a.gif", "noregex", "/img/"),
    ("/img/a.in", "regex", r"\.in$"),
    ("/A.GIF", "regex", r"\.(gif|jpg)$"),
    ("/u/me", "regex", r"^/u/(?<who>\w+)"),
    ("/u/me/x", "regex", "/x$"),
    ("/u/me/a.gif", "regex", r"\.(gif|jpg)$"),
    ("/@named", "prefix", "/"),
]


@pytest.fixture
def server(build_conf):
    gateway, problems = build_conf("events {} http { access_log off; server { " + LOCATIONS + " } }")
    assert not problems.errors
    return gateway.servers[0]


@pytest.mark.parametrize(("uri", "kind", "name"), TABLE)
def test_location(server, uri, kind, name):
    found = server.tree.find(uri.encode(), None)
    assert (found.kind, found.name.decode()) == (kind, name)


def test_named_locations_are_apart(server):
    assert list(server.named) == [b"@named"]


def test_search_does_not_depend_on_the_order_of_prefixes(build_conf):
    names = ["/", "/a", "/a/", "/a/b", "/ab"]
    for order in (names, names[::-1]):
        body = " ".join(f"location {name} {{ }}" for name in order)
        gateway, _ = build_conf(f"events {{}} http {{ server {{ {body} }} }}")
        tree = gateway.servers[0].tree
        found = [tree.find(uri, None).name for uri in (b"/x", b"/a", b"/ab", b"/a/c", b"/a/bc")]
        assert found == [b"/", b"/a", b"/ab", b"/a/", b"/a/b"]


NAMES = [
    ("exact", "example.com", "e"),
    ("head", "example.com", "h"),
    ("head", "a.example.com", "ha"),
    ("dot", "both.org", "d"),
    ("tail", "mail", "t"),
    ("tail", "mail.example", "te"),
]


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("example.com", "e"),
        ("www.example.com", "h"),
        ("x.y.example.com", "h"),
        ("b.a.example.com", "ha"),
        ("both.org", "d"),
        ("www.both.org", "d"),
        ("mail.net", "t"),
        ("mail.example.net", "te"),
        ("mail.example.com", "h"),
        ("other", "default"),
        ("", "default"),
        ("xexample.com", "default"),
    ],
)
def test_server_names(host, server):
    table = NameTable("default")
    for kind, text, target in NAMES:
        assert table.add(ServerName(kind, text), target)
    assert table.find(host.encode()) == (server, None)


def test_first_server_keeps_a_name(build_conf):
    _, problems = build_conf(
        "events {} http { server { listen 80; server_name a; } server { listen 80; server_name a; } }"
    )
    assert [w.message for w in problems.warnings] == ['conflicting server name "a" on 0.0.0.0:80, ignored']


async def test_default_server_and_addresses(serve):
    site = await serve(
        """http { access_log off;
        server { listen 127.0.0.1:80; server_name a; return 200 "first"; }
        server { listen 127.0.0.1:80 default_server; server_name b; return 200 "default"; }
        server { listen 127.0.0.1:81; server_name a; return 200 "other"; } }"""
    )
    assert (await site.get("/", host="a"))[2] == b"first"
    assert (await site.get("/", host="zzz"))[2] == b"default"
    assert split_body(await site.raw(b"GET / HTTP/1.1\r\nHost: zzz\r\n\r\n", port=site.ports[1])) == b"other"


def split_body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_wildcard_socket_stands_for_single_addresses(build_conf):
    gateway, problems = build_conf(
        "events {} http { server { listen 80; } server { listen 127.0.0.1:80; } server { listen [::1]:80; } }"
    )
    assert not problems.errors
    assert [spec.text for spec in gateway.listens] == ["0.0.0.0:80", "[::1]:80"]
    assert list(gateway.ports[0].local) == ["127.0.0.1"]


def test_request_has_cheap_defaults():
    assert Request.status == 0
    assert Request.captures == ()
