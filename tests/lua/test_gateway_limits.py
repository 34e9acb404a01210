"""limit_req and limit_conn: sequences of requests, here and in nginx."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import ConfError

HTTP = """
    limit_req_zone $arg_k zone=slow:1m rate=1r/m;
    limit_req_zone $arg_k$arg_l zone=both:1m rate=1r/m;
    limit_conn_zone $arg_k zone=conns:1m;
    log_format limits "$uri $limit_req_status $limit_conn_status";
"""
SERVER = """
    location = /once { limit_req zone=slow; echo $limit_req_status; }
    location = /burst { limit_req zone=slow burst=2 nodelay; limit_req_status 429; echo $limit_req_status; }
    location = /dry { limit_req zone=slow; limit_req_dry_run on; echo $limit_req_status; }
    location = /two { limit_req zone=slow burst=5 nodelay; limit_req zone=both nodelay; echo passed; }
    location = /conn { limit_conn conns 1; echo $limit_conn_status; }
    location = /inner { limit_conn conns 1; echo_location /conn; }
    location = /none { limit_req zone=slow; limit_conn conns 1; echo [$limit_req_status][$limit_conn_status]; }
"""
STEPS = [
    ("/once?k=a", 200, "PASSED"),
    ("/once?k=a", 503, "503 Service Temporarily Unavailable"),
    ("/once?k=b", 200, "PASSED"),
    ("/dry?k=b", 200, "REJECTED_DRY_RUN"),
    ("/dry?k=c", 200, "PASSED"),
    ("/burst?k=d", 200, "PASSED"),
    ("/burst?k=d", 200, "PASSED"),
    ("/burst?k=d", 200, "PASSED"),
    ("/burst?k=d", 429, "429 Too Many Requests"),
    ("/two?k=e&l=1", 200, "passed"),
    ("/two?k=e&l=2", 200, "passed"),
    ("/two?k=e&l=2", 503, ""),
    ("/conn?k=f", 200, "PASSED"),
    ("/conn?k=f", 200, "PASSED"),
    ("/inner?k=f", 200, "PASSED"),
    ("/none", 200, "[][]"),
]


def check(answers) -> None:
    found = [(target, answer.status) for (target, _, _), answer in zip(STEPS, answers, strict=True)]
    assert found == [(target, status) for target, status, _ in STEPS]
    assert all(text in answer.text for (_, _, text), answer in zip(STEPS, answers, strict=True))


async def test_limits(gateway):
    await gateway.start(SERVER, http=HTTP)
    check([await gateway.get(target) for target, _, _ in STEPS])
    assert 'limiting requests, excess: 1.000 by zone "slow"' in gateway.log()
    assert 'limiting requests, dry run, excess: 1.000 by zone "slow"' in gateway.log()


@pytest.mark.peer
def test_limits_in_nginx(nginx):
    get = nginx(SERVER, http=HTTP)
    check([get(target) for target, _, _ in STEPS])


async def test_connections_at_a_time(gateway):
    await gateway.start(
        "limit_conn_log_level warn; location / { limit_conn conns 2; content_by_lua_block { ngx.sleep(0.2) ngx.say(1) } }",
        http="limit_conn_zone $arg_k zone=conns:1m;",
    )
    answers = await asyncio.gather(*(gateway.get("/?k=a") for _ in range(4)), gateway.get("/?k=b"))
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 503, 503]
    assert (await gateway.get("/?k=a")).status == 200
    assert "[warn]" in gateway.log()
    assert 'limiting connections by zone "conns"' in gateway.log()


async def test_a_delayed_request_ends_with_its_client(gateway):
    await gateway.start(
        "location / { limit_req zone=z burst=9; echo hi; }", http="limit_req_zone a zone=z:1m rate=1r/m;"
    )
    assert (await gateway.get("/")).status == 200
    _, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    while "delaying request" not in gateway.log():
        await asyncio.sleep(0.01)
    assert len(gateway.gateway.connections) == 1
    writer.close()
    while gateway.gateway.connections:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("http", "server", "message"),
    [
        ("limit_req_zone a zone=z:1k rate=1r/s;", "", 'zone "z" is too small'),
        ("limit_req_zone a zone=z:1m rate=1/s;", "", 'invalid rate "rate=1/s"'),
        ("limit_req_zone a zone=z:x rate=1r/s;", "", "invalid zone size"),
        ("limit_conn_zone a size=1m;", "", 'invalid parameter "size=1m"'),
        ("", "limit_req zone=z;", 'zero size shared memory zone "z"'),
        ("", "limit_req burst=1;", 'must have "zone" parameter'),
        ("", "limit_req zone=a burst=x;", 'invalid burst value "burst=x"'),
        ("", "limit_conn z 0;", 'invalid number of connections "0"'),
        ("", "limit_conn_status 200;", "value must be between 400 and 599"),
        ("", "limit_req_log_level debug;", 'invalid value "debug"'),
    ],
)
async def test_refuses(gateway, http, server, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(server, http=http)
