"""resty.dns.resolver, unmodified, against a name server of the test: UDP, TCP where an answer is cut, and errors."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from libs_rig import library

pytestmark = pytest.mark.peer

A, CNAME, MX, TXT, AAAA = 1, 5, 15, 16, 28


def wire(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


RECORDS = {
    "one.test": [(A, socket.inet_aton("10.0.0.1")), (A, socket.inet_aton("10.0.0.2"))],
    "six.test": [(AAAA, socket.inet_pton(socket.AF_INET6, "2001:db8::1"))],
    "also.test": [(CNAME, wire("one.test")), (A, socket.inet_aton("10.0.0.1"))],
    "mail.test": [(MX, struct.pack("!H", 10) + wire("mx.test"))],
    "text.test": [(TXT, b"\x05hello\x05world")],
    "many.test": [(A, socket.inet_aton(f"10.1.{i // 256}.{i % 256}")) for i in range(400)],
}


def respond(asked: bytes, *, tcp: bool) -> bytes:
    end = asked.index(b"\0", 12)
    labels, at = [], 12
    while at < end:
        labels.append(asked[at + 1 : at + 1 + asked[at]].decode())
        at += asked[at] + 1
    records = RECORDS.get(".".join(labels))
    code = 3 if records is None else 0
    cut = records is not None and len(records) > 100 and not tcp
    records = [] if records is None or cut else records
    flags = 0x8180 | code | (0x0200 if cut else 0)
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(data)) + data for kind, data in records)
    return asked[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0) + asked[12 : end + 5] + body


@pytest.fixture
async def name_server():
    """The port of a name server on UDP and TCP; UDP leaves the first question for silent.test without an answer."""
    loop = asyncio.get_running_loop()

    class Datagrams(asyncio.DatagramProtocol):
        def connection_made(self, transport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, sender) -> None:
            if b"silent" not in data:
                self.transport.sendto(respond(data, tcp=False), sender)

    async def serve(reader, writer) -> None:
        size = struct.unpack("!H", await reader.readexactly(2))[0]
        answer = respond(await reader.readexactly(size), tcp=True)
        writer.write(struct.pack("!H", len(answer)) + answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", port))
    yield port
    transport.close()
    server.close()


CODE = """
    local resolver = require "nginx.dns.resolver"
    local r = assert(resolver:new{nameservers = {{"127.0.0.1", %d}}, retrans = 1, timeout = 5000})
    local function show(name, options)
        local answers, err = r:query(name, options)
        if not answers then return ngx.say(err) end
        if answers.errcode then return ngx.say(answers.errcode, answers.errstr) end
        local words = {}
        for i, one in ipairs(answers) do
            local text = one.txt
            words[i] = one.address or one.cname or one.exchange or type(text) == "table" and table.concat(text, "+") or text
        end
        ngx.say(#words, " ", table.concat(words, ",", 1, math.min(#words, 3)), " ", answers[1].ttl)
    end
    show("one.test")
    show("six.test", {qtype = r.TYPE_AAAA})
    show("also.test")
    show("mail.test", {qtype = r.TYPE_MX})
    show("text.test", {qtype = r.TYPE_TXT})
    show("many.test")
    show("none.test")
    ngx.say(#assert(r:tcp_query("one.test")))
    local impatient = assert(resolver:new{nameservers = {{"127.0.0.1", %d}}, retrans = 2, timeout = 10})
    ngx.say(select(2, impatient:query("silent.test")))
"""


async def test_dns_resolver(gateway, name_server):
    library("nginx/dns/resolver.lua")
    await gateway.content(CODE % (name_server, name_server))
    lines = (await gateway.get()).text.splitlines()
    assert lines[:-1] == [
        "2 10.0.0.1,10.0.0.2 60", "1 2001:db8:0:0:0:0:0:1 60", "2 one.test,10.0.0.1 60", "1 mx.test 60",
        "1 hello+world 60", "400 10.1.0.0,10.1.0.1,10.1.0.2 60", "3name error", "2",
    ], gateway.log()  # fmt: skip
    assert "timeout" in lines[-1]
