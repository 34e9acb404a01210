"""Sources tcp, udp and syslog on real sockets."""

import asyncio
import contextlib
import socket
import ssl
from types import SimpleNamespace

import pytest
import trustme
from http_rig import Taken, problems_of
from network_rig import running

from headrace.errors import BufferOverflow
from headrace.plugins.network.clients import Names
from headrace.testing.clock import FakeClock

JSON = "<parse>\n@type json\n</parse>"
TCP = f"@type tcp\nbind 127.0.0.1\nport 0\ntag t\n{JSON}\n"
UDP = f"@type udp\nbind 127.0.0.1\nport 0\ntag t\n{JSON}\n"
SYSLOG = "@type syslog\nbind 127.0.0.1\nport 0\ntag sys\n"
LINE = b"<6>Feb 28 12:00:00 box app[7]: text"
RECORD = {"host": "box", "ident": "app", "pid": "7", "message": "text"}


@contextlib.asynccontextmanager
async def connected(rig, **options):
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def sender(rig):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(("127.0.0.1", rig.port))
    return sock


async def test_tcp_takes_payloads_at_each_delimiter():
    async with running(TCP) as rig, connected(rig) as (_, writer):
        writer.write(b'{"a":1}\n{"a":2}\n{"a"')
        assert await rig.events(2) == [{"a": 1}, {"a": 2}]
        writer.write(b":3}\nnonsense\n")
        assert (await rig.events(3))[2] == {"a": 3}
        await rig.until(lambda: rig.plugin.stats()["unmatched"] == 1)
        assert rig.taken.tags[0] == "t"
        assert len(rig.taken.batches) <= 3
        assert rig.plugin.stats()["connections"] == 1


async def test_tcp_delimiter_limit_and_address():
    text = TCP + 'delimiter "||"\nmessage_length_limit 10\nsource_address_key from\nsend_keepalive_packet true\n'
    async with running(text) as rig, connected(rig) as (_, writer):
        writer.write(b'{"a":1}||{"a":"far too long"}||{"a":2}|')
        await writer.drain()
        writer.write(b"|")
        assert await rig.events(2) == [{"a": 1, "from": "127.0.0.1"}, {"a": 2, "from": "127.0.0.1"}]
        assert rig.plugin.stats()["too_long"] == 1


async def test_tcp_extracts_tag_and_time():
    extract = "<extract>\ntag_key to\ntime_key at\ntime_type unixtime\n</extract>\n"
    async with running(TCP + extract) as rig, connected(rig) as (_, writer):
        writer.write(b'{"to":"x","at":1700000000,"v":1}\n{"v":2}\n{"to":"x","at":1,"v":3}\n')
        await rig.events(3)
        assert rig.taken.tags == ["x", "t"]
        assert rig.taken.batches[0][1] == [(1_700_000_000 * 10**9, {"v": 1}), (10**9, {"v": 3})]


async def test_names_of_senders():
    async with running(TCP + "source_hostname_key name\n") as rig, connected(rig) as (_, writer):
        writer.write(b'{"a":1}\n')
        ((record),) = await rig.events(1)
        assert record["name"] == socket.getnameinfo(("127.0.0.1", 0), 0)[0]
    async with running(UDP + "source_host_key name\nsource_address_key ip\n") as rig:
        sock = sender(rig)
        sock.send(b'{"a":1}')
        sock.send(b'{"a":2}')
        records = await rig.events(2)
        assert [record["a"] for record in records] == [1, 2]
        assert {record["ip"] for record in records} == {"127.0.0.1"}
        sock.close()


@pytest.mark.parametrize(
    ("client", "allowed"),
    [("host 127.0.0.1", True), ("network 127.0.0.0/8", True), ("network 10.0.0.0/8", False), ("host ::1", False)],
)
async def test_who_may_send(client, allowed):
    text = TCP + f"<security>\n<client>\n{client}\n</client>\n</security>\n"
    async with running(text) as rig, connected(rig) as (reader, writer):
        writer.write(b'{"a":1}\n')
        if allowed:
            await rig.events(1)
        else:
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            assert rig.taken.records == []
        assert rig.plugin.stats()["denied"] == (not allowed)


class Held(Taken):
    """Takes nothing until it is let go; `full`: it raises BufferOverflow instead."""

    def __init__(self, *, full):
        super().__init__()
        self.full = full
        self.gate = asyncio.Event()
        self.offers = 0

    def emit(self, tag, batch):
        self.offers += 1
        if self.gate.is_set():
            return super().emit(tag, batch)
        if self.full:
            raise BufferOverflow("full")
        return self._later(tag, batch)

    async def _later(self, tag, batch):
        await self.gate.wait()
        super().emit(tag, batch)


@pytest.mark.parametrize("full", [False, True])
async def test_tcp_holds_its_senders_back(full):
    taken = Held(full=full)
    async with running(TCP, taken=taken) as rig, connected(rig) as (_, writer):
        total = 100_000
        writer.write(b"".join(b'{"n":%d}\n' % n for n in range(total)))
        await rig.until(lambda: taken.offers > 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert rig.plugin.stats()["messages"] < total / 5  # one read, and not more
        taken.gate.set()
        records = await rig.events(total)
        assert [record["n"] for record in records] == list(range(total))
        assert rig.plugin.stats()["held"] >= 1
        assert rig.plugin.stats()["events"] == total


async def test_udp_drops_and_counts_what_finds_no_room():
    taken = Held(full=True)
    async with running(UDP, taken=taken) as rig:
        sock = sender(rig)
        for n in range(5):
            sock.send(b'{"n":%d}' % n)
        await rig.until(lambda: rig.plugin.stats()["refused"] == 5)
        taken.gate.set()
        sock.send(b'{"n":9}')
        assert await rig.events(1) == [{"n": 9}]
        sock.close()


async def test_udp_waits_for_slow_buffers_and_the_kernel_counts_what_it_drops():
    taken = Held(full=False)
    async with running(UDP + "receive_buffer_size 4k\n", taken=taken) as rig:
        sock = sender(rig)
        sock.send(b'{"n":0}')
        await rig.until(lambda: taken.offers > 0)
        for n in range(1, 200):
            sock.send(b'{"n":%d}' % n)
        taken.gate.set()
        await rig.until(lambda: len(taken.records) + rig.plugin.stats()["kernel_drops"] == 200)
        assert 0 < rig.plugin.stats()["kernel_drops"] < 200
        numbers = [record["n"] for record in taken.records]
        assert numbers == sorted(set(numbers))
        sock.close()


async def test_udp_many_datagrams_become_few_batches():
    async with running(UDP) as rig:
        sock = sender(rig)
        for n in range(50):
            sock.send(b'{"n":%d}\n' % n)
        assert [record["n"] for record in await rig.events(50)] == list(range(50))
        assert len(rig.taken.batches) <= 25
        sock.close()


async def test_udp_cuts_what_is_too_long():
    text = UDP.replace("@type json", "@type none") + "message_length_limit 4\n"
    async with running(text) as rig:
        sock = sender(rig)
        sock.send(b"abcdefgh")
        sock.send(b"abcd")
        assert await rig.events(2) == [{"message": "abcd"}, {"message": "abcd"}]
        assert rig.plugin.stats()["too_long"] == 1
        sock.close()


@pytest.mark.parametrize(("line", "message"), [("", "a"), ("remove_newline false", "a\r\n")])
async def test_udp_newlines(line, message):
    async with running(UDP.replace("@type json", "@type none") + line) as rig:
        sock = sender(rig)
        sock.send(b"a\r\n")
        assert await rig.events(1) == [{"message": message}]
        sock.close()


async def test_what_is_under_way_at_the_end_is_taken():
    async with running(UDP) as rig:
        sock = sender(rig)
        for n in range(200):
            sock.send(b'{"n":%d}' % n)
        await rig.stop()
        assert len(rig.taken.records) == 200
        sock.close()
    async with running(TCP) as rig, connected(rig) as (reader, writer):
        writer.write(b'{"n":1}\n')
        await rig.events(1)
        stopping = asyncio.create_task(rig.stop())
        async with asyncio.timeout(10):
            assert await reader.read() == b""  # told to go
        writer.write(b'{"n":2}\n')
        await stopping
        assert [record["n"] for record in rig.taken.records] == [1, 2]


async def test_a_client_that_never_stops_is_let_go(monkeypatch):
    monkeypatch.setattr("headrace.plugins.network.streams.LONGEST", 0.5)
    async with running(TCP) as rig, connected(rig) as (_, writer):

        async def pour():
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b'{"n":1}\n' * 100)
                    await writer.drain()
                    await asyncio.sleep(0.005)

        pouring = asyncio.create_task(pour())
        await rig.events(1)
        await rig.stop()
        await pouring
        assert rig.plugin.stats()["connections"] == 0


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize("text", [TCP, UDP])
async def test_ipv6(text):
    text = text.replace("127.0.0.1", "::1") + "source_address_key from\n"
    try:
        async with running(text) as rig:
            kind = socket.SOCK_STREAM if "tcp" in text else socket.SOCK_DGRAM
            with socket.socket(socket.AF_INET6, kind) as sock:
                sock.connect(("::1", rig.port))
                sock.send(b'{"a":1}\n')
                assert await rig.events(1) == [{"a": 1, "from": "::1"}]
    except OSError:
        pytest.skip("this machine has no ::1")


async def test_names_are_bounded_in_time_and_number(monkeypatch):
    loop = asyncio.get_running_loop()
    clock = FakeClock()
    asked = []

    async def lookup(address, _flags):
        asked.append(address[0])
        if address[0] == "10.0.0.1":
            raise OSError("no name")
        if address[0] == "10.0.0.2":
            await asyncio.Event().wait()
        return f"name-{address[0]}", "0"

    names = Names(loop, clock)
    names._loop = SimpleNamespace(getnameinfo=lookup)
    assert await names.find("10.0.0.0") == "name-10.0.0.0"
    assert await names.find("10.0.0.1") == "10.0.0.1"
    slow = asyncio.create_task(names.find("10.0.0.2"))
    await clock.elapse(3)
    assert await slow == "10.0.0.2"
    assert names.get("10.0.0.0") == "name-10.0.0.0"
    await names.find("10.0.0.0")
    assert len(asked) == 3
    await clock.elapse(600)
    assert names.get("10.0.0.0") is None
    for number in range(3000):
        await names.find(f"10.1.{number // 250}.{number % 250}")
    assert len(names._known) <= 1024


@pytest.mark.parametrize("protocol", ["udp", "tcp", "old"])
async def test_syslog(protocol):
    lines = "protocol_type tcp\n" if protocol == "old" else f"<transport {protocol}>\n</transport>\n"
    async with running(SYSLOG + lines + "severity_key s\nfacility_key f\nsource_address_key a\n") as rig:
        if protocol == "udp":
            sock = sender(rig)
            sock.send(LINE + b"\n")
        else:
            sock = socket.create_connection(("127.0.0.1", rig.port))
            sock.sendall(LINE + b"\n")
        assert await rig.events(1) == [{**RECORD, "s": "info", "f": "kern", "a": "127.0.0.1"}]
        assert rig.taken.tags == ["sys.kern.info"]
        sock.close()


async def test_syslog_octet_counts():
    text = SYSLOG + "frame_type octet_count\n<transport tcp>\n</transport>\n"
    async with running(text) as rig, connected(rig) as (reader, writer):
        other = LINE.replace(b"<6>", b"<165>") + b"\nsecond line"
        writer.write(b"%d %b%d %b" % (len(LINE), LINE, len(other), other[:10]))
        await rig.events(1)
        writer.write(other[10:])
        await rig.events(2)
        assert rig.taken.tags == ["sys.kern.info", "sys.local4.notice"]
        writer.write(b"no count")
        async with asyncio.timeout(10):
            assert await reader.read() == b""


async def test_syslog_tls(tmp_path):
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for part in issued.cert_chain_pems:
        part.write_to_path(cert, append=True)
    text = SYSLOG + f"<transport tls>\ncert_path {cert}\nprivate_key_path {key}\n</transport>\n"
    context = ssl.create_default_context()
    ca.configure_trust(context)
    async with running(text) as rig, connected(rig, ssl=context) as (_, writer):
        writer.write(LINE + b"\n")
        assert await rig.events(1) == [RECORD]


async def test_syslog_unmatched_lines(caplog):
    async with running(SYSLOG + "emit_unmatched_lines true\n") as rig:
        sock = sender(rig)
        for _ in range(100):
            sock.send(b"no priority\xff")
        records = await rig.events(100)
        assert records[0] == {"unmatched_line": "no priority\udcff"}
        assert set(rig.taken.tags) == {"sys.unmatched"}
        sock.close()
    assert caplog.text.count("pattern not matched") < 10


async def test_syslog_another_parser_gets_the_text_after_the_priority():
    async with running(SYSLOG + JSON) as rig:
        sock = sender(rig)
        sock.send(b'<13>{"a":1}')
        assert await rig.events(1) == [{"a": 1}]
        assert rig.taken.tags == ["sys.user.notice"]
        sock.close()


async def test_syslog_auto_and_strange_priorities():
    async with running(SYSLOG + "<parse>\nmessage_format auto\n</parse>\nseverity_key s\nfacility_key f\n") as rig:
        sock = sender(rig)
        sock.send(b"<16>1 2017-02-28T12:00:00.009Z h fluentd - - - Hello!")
        sock.send(LINE)
        sock.send(LINE.replace(b"<6>", b"<999>"))
        await rig.events(3)
        assert rig.taken.tags == ["sys.mail.emerg", "sys.kern.info", "sys..debug"]
        assert rig.taken.records[2]["f"] is None
        sock.close()


def test_an_old_configuration_still_works():
    errors, _ = problems_of("input", "<source>\n@type tcp\ntag t\nformat json\n</source>")
    assert errors == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@type tcp\ntag t", "<parse>"),
        ("@type udp\n<parse>\n@type none\n</parse>", '"tag" is required'),
        (TCP + 'delimiter ""', '"delimiter" must not be empty'),
        (TCP + "port 70000", "out of range"),
        (TCP + "<security>\n</security>", "<client> section is required"),
        (TCP + "<security>\n<client>\n</client>\n</security>", "needs host or network"),
        (TCP + "<security>\n<client>\nnetwork nowhere\n</client>\n</security>", "is no network"),
        (TCP + "<transport udp>\n</transport>", "udp"),
        (UDP + "message_length_limit 0", "at least 1"),
        (SYSLOG + "source_hostname_key h\nresolve_hostname false", "resolve_hostname must be true"),
        (SYSLOG + "send_keepalive_packet true", "is for tcp and tls"),
        (SYSLOG + "include_source_host true\nsource_address_key a", "not both"),
        (SYSLOG + "<transport tls>\n</transport>", "needs one of cert_path"),
        (SYSLOG + "<transport tls>\ninsecure true\nciphers nonsense\n</transport>", 'cipher list "nonsense"'),
        (SYSLOG + "<transport tls>\ninsecure true\ngenerate_private_key_length -1\n</transport>", "1024 to 16384"),
        (SYSLOG + f"<transport tls>\ninsecure true\ngenerate_cert_expiration {'9' * 23}\n</transport>", "1000 years"),
        (SYSLOG + f"<transport tcp>\nreceive_buffer_size {'9' * 23}\n</transport>", "from 1 to 2147483647"),
        (UDP + "receive_buffer_size -1\n", "from 1 to 2147483647"),
        (TCP + "<extract>\ntime_key t\ntime_type string\ntime_format %!\n</extract>", "time_format"),
    ],
)
def test_what_is_refused(text, message):
    errors, _ = problems_of("input", f"<source>\n{text}\n</source>")
    assert any(message in error for error in errors), errors


def test_a_certificate_that_is_made_at_start_needs_nothing_more():
    errors, warnings = problems_of(
        "input", f"<source>\n{SYSLOG}<transport tls>\ninsecure true\n</transport>\n</source>"
    )
    assert not errors
    assert any("signed by itself" in warning for warning in warnings)
