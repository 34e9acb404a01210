"""map, geo, split_clients: nginx is the judge; and what is refused."""

from __future__ import annotations

import pytest
from maps_table import HTTP, REQUESTS, SHOW

from headrace.errors import ConfError


async def test_some(gateway):
    await gateway.start(f"location / {{ {SHOW} }}", http=HTTP)
    assert (await gateway.get("/?a=one&h=example.com&g=10.1.2.3")).text.startswith("1|/|exact|no||one|d|")
    assert (await gateway.get("/?a=xyz")).text.startswith("none|y-z|none|no|first|d|d|")


@pytest.mark.peer
async def test_all_as_in_nginx(gateway, nginx):
    get = nginx(f"location / {{ {SHOW} }}", http=HTTP)
    await gateway.start(f"location / {{ {SHOW} }}", http=HTTP)
    wrong = []
    for query in REQUESTS:
        ours, theirs = (await gateway.get(f"/?{query}")).text, get(f"/?{query}").text
        if ours != theirs:
            wrong.append(f"{query}: {ours} is not {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("http", "message"),
    [
        ("map $a b { }", 'invalid variable name "b"'),
        ("map $arg_a $b { a b c; }", "invalid number of the map parameters"),
        ("map $arg_a $b { a b; A c; }", 'conflicting parameter "A"'),
        ("map $arg_a $b { default b; default c; }", "duplicate default map parameter"),
        ("map $arg_a $b { hostnames; a*b.c d; }", 'invalid hostname or wildcard "a\\*b.c"'),
        ("map $arg_a $b { ~( d; }", "pcre2_compile"),
        ("geo $a { 10.0.0.0/40 b; }", 'invalid network "10.0.0.0/40"'),
        ("geo $a { 1.2.3.4 b; ranges; }", "must be the first"),
        ("geo $a { ranges; 1.2.3.4-1.2.3.1 b; }", "invalid range"),
        ("split_clients $arg_a $b { 60% a; 50% b; }", "percent total is greater than 100%"),
        ("split_clients $arg_a $b { x% a; }", 'invalid percent value "x%"'),
    ],
)
async def test_what_is_refused(gateway, http, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(http=http)


async def test_a_map_is_found_once_for_a_request_unless_it_is_volatile(gateway):
    await gateway.start(
        'location / { set $a 1; set $x "$kept$fresh"; set $a 2; return 200 "$x $kept$fresh"; }',
        http="map $a $kept { 1 one; 2 two; }\nmap $a $fresh { volatile; 1 one; 2 two; }",
    )
    assert (await gateway.get("/")).text == "oneone onetwo"


async def test_geo_sees_the_client_behind_trusted_proxies(gateway):
    await gateway.start(
        'location / { return 200 "$where"; }',
        http="geo $where { proxy 0.0.0.0/0; default d; 10.0.0.0/8 ten; }",
    )
    assert (await gateway.get("/", "X-Forwarded-For: 10.1.1.1")).text == "d"  # a unix socket has no address
