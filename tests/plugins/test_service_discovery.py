"""Service discovery: lists in the configuration, in files, in the DNS."""

import asyncio
import json
import logging

import dns.flags
import dns.message
import dns.rrset
import pytest
from http_rig import context_of

from headrace.conf.fluent import parse
from headrace.core.clock import Clock
from headrace.pipeline.discovery import Service
from headrace.plugins.folder import Folders
from headrace.testing.clock import FakeClock


def discovery(text, context=None):
    context = context or context_of()
    (directive,) = parse(f"<service_discovery>\n{text}\n</service_discovery>", "test.conf", env={})
    made = context.make("sd", directive)
    context.problems.raise_first()
    return made


def errors_of(text):
    context = context_of()
    (directive,) = parse(f"<service_discovery>\n{text}\n</service_discovery>", "test.conf", env={})
    context.make("sd", directive)
    return [str(error) for error in context.problems.errors]


def test_static_takes_service_and_server_sections():
    made = discovery(
        "@type static\n<service>\nhost a\n</service>\n<server>\nhost b\nport 1\nname n\nstandby true\nweight 5\n"
        "username u\npassword p\nshared_key k\n</server>"
    )
    assert made.services == (Service("a"), Service("b", 1, "n", 5, True, "u", "p", "k"))


def test_secrets_are_not_shown():
    assert "hush" not in repr(Service("a", password="hush", shared_key="hush"))


def test_a_discovery_of_ones_own_is_one_class_in_a_file(tmp_path):
    (tmp_path / "sd_dice.py").write_text(
        "from headrace.conf.params import integer\n"
        "from headrace.pipeline.discovery import Service, ServiceDiscovery\n"
        "class Dice(ServiceDiscovery):\n"
        '    """Nodes by number."""\n'
        '    sides = integer(default=6, doc="How many")\n'
        "    def provision(self, context):\n"
        "        self.found([Service(f'node{n}') for n in range(self.sides)])\n"
    )
    context = context_of()
    context.lookup = Folders([str(tmp_path)]).lookup
    assert len(discovery("@type dice\nsides 4", context).services) == 4


# Files.


async def running(path, clock, extra=""):
    context = context_of()
    made = discovery(f"@type file\npath {path}\n{extra}", context)
    context.run_on(asyncio.get_running_loop(), clock, {})
    changes = []
    made.watch(lambda: changes.append(made.services))
    await made.start()
    changes.clear()
    return made, changes


YAML = """\
- 'host': 127.0.0.1
  'port': 24224
  'weight': 1
  'name': server1
- 'host': 127.0.0.1
  'port': 24225
  standby: true
"""


@pytest.mark.parametrize("name", ["sd.yaml", "sd.yml", "sd.d", "a.b.yaml"])
def test_a_file_of_yaml(tmp_path, name):
    path = tmp_path / name
    path.write_text(YAML)
    made = discovery(f"@type file\npath {path}")
    assert made.services == (
        Service("127.0.0.1", 24224, "server1", 1),
        Service("127.0.0.1", 24225, standby=True),
    )


async def test_a_file_is_read_again_when_it_changes(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = tmp_path / "sd.json"
    clock = FakeClock()
    path.write_text(json.dumps([{"host": "a", "port": 1}]))
    made, changes = await running(path, clock)
    await clock.elapse(5)
    assert changes == []
    path.write_text(json.dumps([{"host": "a", "port": 1}, {"host": "bb", "port": 2}]))
    await clock.elapse(2)
    assert changes == [(Service("a", 1), Service("bb", 2))]
    other = tmp_path / "other"
    other.write_text(json.dumps([{"host": "c", "port": 3}, {"host": "dd", "port": 2}]))
    other.replace(path)
    await clock.elapse(2)
    assert made.services == (Service("c", 3), Service("dd", 2))
    assert "service out: a:1" in caplog.text
    await made.stop()
    path.unlink()
    await clock.elapse(5)
    assert made.services == (Service("c", 3), Service("dd", 2))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "Expecting"),
        ('{"host": "a"}', "holds no list of nodes"),
        ('[{"host": "a"}]', "node 1 has no port"),
        ('[{"port": 1}]', "node 1 has no host"),
        ('[{"host": "a", "port": "1"}]', "port must be a whole number"),
        ('[{"host": "a", "port": true}]', "port must be a whole number"),
        ('[{"host": "a", "port": 99999}]', "out of range"),
        ('[{"host": "a", "port": 1, "weight": -1}]', "negative"),
        ('[{"host": "a", "port": 1, "wait": 1}]', 'unknown parameter "wait"'),
        ("[1]", "is no mapping"),
        ("[" * 100_000, "nested"),
        (b"\xff\xfe", "is not utf-8"),
        (None, "cannot be read"),
    ],
)
async def test_bad_content_keeps_the_list_with_one_warning(tmp_path, caplog, content, told):
    path = tmp_path / "sd.json"
    clock = FakeClock()
    path.write_text('[{"host": "a", "port": 1}]')
    made, changes = await running(path, clock)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    await clock.elapse(30)
    assert made.services == (Service("a", 1),)
    assert changes == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert told in line
    assert "1 nodes known before are kept" in line
    path.write_text('[{"host": "b", "port": 1}]')
    await clock.elapse(2)
    assert made.services == (Service("b", 1),)
    await made.stop()


@pytest.mark.parametrize("content", ["- host: [", "a: b: c", "- !!python/object:os.system {}"])
async def test_bad_yaml_keeps_the_list(tmp_path, caplog, content):
    path = tmp_path / "sd.yaml"
    clock = FakeClock()
    path.write_text(YAML)
    made, changes = await running(path, clock)
    path.write_text(content)
    await clock.elapse(30)
    assert len(made.services) == 2
    assert changes == []
    assert len(caplog.records) == 1
    await made.stop()


def test_check_reads_the_file(tmp_path):
    (error,) = errors_of(f"@type file\npath {tmp_path}/none.yaml")
    assert "cannot be read" in error
    assert "test.conf:3" in error
    (error,) = errors_of("@type file\nconf_encoding nonsense")
    assert "unknown encoding" in error


def test_the_default_path_comes_from_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "sd.yaml"
    path.write_text(YAML)
    monkeypatch.setenv("DEFAULT_SD_FILE_PATH", str(path))
    assert len(discovery("@type file").services) == 2


def test_another_encoding(tmp_path):
    path = tmp_path / "sd.json"
    path.write_bytes('[{"host": "a", "port": 1, "name": "grün"}]'.encode("latin-1"))
    assert discovery(f"@type file\npath {path}\nconf_encoding latin-1").services[0].name == "grün"


# The DNS.


class NameServer(asyncio.DatagramProtocol):
    """Answers from `zone`: (name, type) -> texts of records. `silent`: does not."""

    def __init__(self):
        self.zone = {}
        self.silent = False
        self.asked = []

    def connection_made(self, transport):
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data, address):
        query = dns.message.from_wire(data)
        question = query.question[0]
        kind = question.rdtype.name
        name = question.name.to_text(omit_final_dot=True)
        self.asked.append((name, kind))
        if self.silent:
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        if found := self.zone.get((name, kind)):
            answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, *found))
        self.transport.sendto(answer.to_wire(), address)


@pytest.fixture
async def server():
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    yield made
    transport.close()


async def srv(server, clock, extra=""):
    context = context_of()
    text = f"@type srv\nservice fluentd\nhostname example.com\ndns_server_host 127.0.0.1:{server.port}\n{extra}"
    made = discovery(text, context)
    context.run_on(asyncio.get_running_loop(), clock, {})
    changes = []
    made.watch(lambda: changes.append(made.services))
    await made.start()
    changes.clear()
    return made, changes


NAME = ("_fluentd._tcp.example.com", "SRV")


async def test_srv_records_in_order_of_priority(server):
    server.zone[NAME] = ["20 5 24225 b.example.com.", "10 7 24224 a.example.com."]
    server.zone["a.example.com", "A"] = ["10.0.0.1"]
    server.zone["b.example.com", "AAAA"] = ["::5"]
    made, _ = await srv(server, FakeClock(), "shared_key k\nusername u\npassword p")
    assert made.services == (
        Service("10.0.0.1", 24224, "a.example.com", 7, False, "u", "p", "k"),
        Service("::5", 24225, "b.example.com", 5, False, "u", "p", "k"),
    )
    await made.stop()


async def test_an_address_in_use_is_kept_while_the_name_has_it(server):
    clock = FakeClock()
    server.zone[NAME] = ["1 1 1 a.example.com.", "1 1 1 b.example.com."]
    server.zone["a.example.com", "A"] = server.zone["b.example.com", "A"] = ["10.0.0.1", "10.0.0.2"]
    made, changes = await srv(server, clock)
    before = made.services
    server.zone[NAME].reverse()
    for _ in range(5):
        server.zone["a.example.com", "A"].reverse()
        await made._ask()
    assert made.services is before
    assert changes == []
    await made.stop()


async def test_a_target_without_an_address_does_not_hide_the_others(server, caplog):
    server.zone[NAME] = ["1 1 1 a.example.com.", "1 1 1 gone.example.com."]
    server.zone["a.example.com", "A"] = ["10.0.0.1"]
    made, changes = await srv(server, FakeClock())
    assert [one.host for one in made.services] == ["10.0.0.1"]
    assert "gone.example.com" in caplog.text
    server.zone.pop(("a.example.com", "A"))
    await made._ask()
    assert changes == [], "a name that cannot be asked for keeps its address"
    await made.stop()


async def test_srv_without_dns_lookup_keeps_names(server):
    server.zone[NAME] = ["1 0 24224 a.example.com.", "1 0 24225 b.example.com."]
    made, _ = await srv(server, FakeClock(), "dns_lookup false")
    assert [(one.host, one.weight) for one in made.services] == [("a.example.com", 60), ("b.example.com", 60)]
    assert server.asked == [NAME]
    await made.stop()


async def test_srv_is_asked_again_and_an_answer_of_nobody_changes_nothing(server, caplog):
    clock = FakeClock()
    server.zone[NAME] = ["1 1 1 a.example.com."]
    made, changes = await srv(server, clock, "dns_lookup false\ninterval 30")
    server.zone[NAME] = ["1 1 2 a.example.com."]
    await elapse_with_io(clock, 29, server, 1)
    assert changes == []
    await elapse_with_io(clock, 2, server, 2)
    async with asyncio.timeout(10):
        while not changes:
            await asyncio.sleep(0.001)
    assert made.services[0].port == 2
    server.zone.clear()
    await elapse_with_io(clock, 30, server, 3)
    async with asyncio.timeout(10):
        while "cannot be looked up" not in caplog.text:
            await asyncio.sleep(0.001)
    assert made.services[0].port == 2
    await made.stop()


async def elapse_with_io(clock, seconds, server, questions):
    await clock.elapse(seconds)
    async with asyncio.timeout(10):
        while len(server.asked) < questions:
            await asyncio.sleep(0.001)


async def test_srv_starts_without_an_answer_and_asks_again_soon(server, caplog):
    clock = FakeClock()
    made, _changes = await srv(server, clock, "dns_lookup false\ninterval 3600")
    assert made.services == ()
    assert "_fluentd._tcp.example.com cannot be looked up" in caplog.text
    server.zone[NAME] = ["1 1 1 a.example.com."]
    await clock.elapse(6)
    async with asyncio.timeout(10):
        while not made.services:
            await asyncio.sleep(0.001)
    await made.stop()


async def test_srv_of_a_name_server_by_name(server):
    server.zone[NAME] = ["1 1 1 a.example.com."]
    context = context_of()
    text = (
        f"@type srv\nservice fluentd\nhostname example.com\ndns_server_host localhost:{server.port}\ndns_lookup false"
    )
    made = discovery(text, context)
    loop = asyncio.get_running_loop()
    context.run_on(loop, Clock(loop), {})

    async def ipv4(host, port, **_):
        assert host == "localhost"
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    loop_getaddrinfo, loop.getaddrinfo = loop.getaddrinfo, ipv4
    try:
        await made.start()
    finally:
        loop.getaddrinfo = loop_getaddrinfo
    assert len(made.services) == 1
    await made.stop()


@pytest.mark.parametrize("value", ["a:b:c:d", ":53", "host:port", "h:0"])
def test_a_name_server_that_cannot_be(value):
    wrong = errors_of(f"@type srv\nservice s\nhostname h\ndns_server_host {value}")
    assert (not wrong) == (value == "a:b:c:d")


def test_srv_needs_its_parameters():
    assert len(errors_of("@type srv")) == 2
    assert "at least 1" in errors_of("@type srv\nservice a\nhostname b\ninterval 0")[0]
