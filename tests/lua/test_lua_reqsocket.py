"""ngx.req.socket: the table, in nginx too; and what needs a client that does one thing after another."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme
from lua_rig import Answer
from reqsocket_table import GET, LOCATIONS, RAW, SWITCH, TABLE

SLOW = "raw: a read that times out"


def locations() -> str:
    cases = "\n".join(
        f"location = /case{i} {{ content_by_lua_block {{\n{code}\n}} }}" for i, (_, code, _, _) in enumerate(TABLE)
    )
    return LOCATIONS + cases


def judge(answers: list[bytes]) -> None:
    wrong = []
    for (name, _, _, output), raw in zip(TABLE, answers, strict=True):
        body = raw.split(b"\r\n\r\n", 1)[-1].decode() if b"chunked" not in raw else Answer(raw).text
        if body != output:
            wrong.append(f"{name}: {body!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


async def test_table(gateway):
    await gateway.start(locations())
    answers = []
    for i, (name, _, request, _) in enumerate(TABLE):
        reader, writer = await asyncio.open_unix_connection(gateway.path)
        writer.write(request.format(path=f"/case{i}").encode())
        if name == SLOW:
            assert b"timeout" in await asyncio.wait_for(reader.readuntil(b"abc"), 10)
            writer.write_eof()
            answers.append(b"\r\n\r\nniltimeoutabc" + await asyncio.wait_for(reader.read(), 10))
        else:
            writer.write_eof()
            answers.append(await asyncio.wait_for(reader.read(), 10))
        writer.close()
    judge(answers)
    stats = gateway.runtime.stats()
    assert stats["sockets"] == stats["requests"] == 0


@pytest.mark.peer
def test_table_in_nginx(nginx):
    get = nginx(locations())
    answers = []
    for i, (name, _, request, _) in enumerate(TABLE):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(str(get.folder / "http.sock"))
            sock.sendall(request.format(path=f"/case{i}").encode())
            raw = b""
            if name == SLOW:
                while b"niltimeoutabc" not in raw:
                    raw += sock.recv(65536)
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(65536):
                raw += data
            answers.append(raw)
    judge(answers)


POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n"
READ = "local sock = assert(ngx.req.socket())\n"


async def test_a_body_that_comes_slowly_and_a_request_behind_it(gateway):
    await gateway.content(
        READ
        + "sock:settimeout(20) ngx.say(sock:receive(6)) sock:settimeout(5000) ngx.flush(true) ngx.say(sock:receive(3))"
    )
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(POST + b"\r\nabc")
    assert b"niltimeoutabc" in await asyncio.wait_for(reader.readuntil(b"abc"), 10)
    writer.write(b"def" + POST + b"Connection: close\r\n\r\nuvwxyz")
    rest = await asyncio.wait_for(reader.read(), 10)
    assert b"def\n" in rest
    assert b"uvwxyz\n" in rest
    writer.close()


async def test_a_client_that_waits_to_be_asked(gateway):
    await gateway.content(READ + "ngx.sleep(0.01) ngx.say(sock:receive(6))")
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(POST + b"Expect: 100-continue\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abcdef")
    assert b"abcdef" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 10)
    writer.close()


async def test_a_client_that_leaves_amid_its_body(gateway):
    await gateway.content(READ + "ngx.log(ngx.WARN, 'end: ', sock:receive(6))")
    await gateway.raw(POST + b"\r\nabc", eof=True)
    assert "end: nilclient abortedabc" in gateway.log()


async def test_a_read_of_the_body_that_nobody_waits_for_any_more(gateway):
    await gateway.content(
        READ + "ngx.thread.spawn(function() sock:receive(6) end) ngx.say('over') ngx.exit(200)",
    )
    answer = await gateway.raw(POST + b"Connection: close\r\n\r\nabc", eof=True)
    assert b"over" in answer
    assert gateway.runtime.stats()["requests"] == 0


async def test_a_client_that_leaves_is_told_to_who_asked(gateway):
    await gateway.content(
        "ngx.on_abort(function() ngx.log(ngx.WARN, 'gone') ngx.exit(499) end)"
        + SWITCH
        + RAW
        + "sock:send('x') ngx.sleep(20)",
        http="lua_check_client_abort on;",
    )
    answer = await gateway.raw(GET.format(path="/").encode(), eof=True)
    assert answer.endswith(b"\r\n\r\nx")
    assert "gone" in gateway.log()
    assert gateway.runtime.stats()["sockets"] == 0


async def test_over_tls(gateway, tmp_path):
    ca = trustme.CA()
    cert = ca.issue_cert("good.test")
    cert.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    cert.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await gateway.start(
        f"""listen 127.0.0.1:{port} ssl; ssl_certificate {tmp_path}/cert.pem; ssl_certificate_key {tmp_path}/key.pem;
        location / {{ content_by_lua_block {{ {SWITCH} {RAW}
            while true do
                local line = sock:receive()
                if not line then break end
                sock:send(line:upper() .. "\\n")
            end
        }} }}"""
    )
    context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="good.test")
    writer.write(GET.format(path="/").encode() + b"first\n")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert await asyncio.wait_for(reader.readline(), 10) == b"FIRST\n"
    big = b"x" * 300_000 + b"\n"
    writer.write(big)
    assert await asyncio.wait_for(reader.readexactly(len(big)), 20) == big.upper()
    writer.close()
