"""Source syslog against a real Fluentd: the same datagrams, the same tags, times and records."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
import time
from datetime import datetime

import pytest
from network_rig import running

from headrace.testing.plugin import need_fluentd

pytestmark = pytest.mark.fluentd

PARSERS = [(form, engine) for form in ("rfc3164", "rfc5424", "auto") for engine in ("regexp", "string")]
MESSAGES = [
    "<6>Feb 28 12:00:00 192.168.0.1 fluentd[11111]: [error] Syslog test",
    "<34>Feb  8 02:00:00 host su: 'su root' failed on /dev/pts/8",
    "<13>Feb 28 12:00:00 host app no colon here",
    "<13>Feb 28 12:00:00 host app[7] no colon but a pid",
    "<13>Feb 28 12:00:00 host a-b_c.d/e(f)[7]: odd ident: and : colons",
    "<13>Feb 28 12:00:00 host onlyword",
    "<13>Feb 28 12:00:00 host  two spaces: x",
    "<191>Feb 28 12:00:00 host app: last priority\n",
    "<13>Feb 28 12:00:00 host app:\ttabs\tand \\ backslashes",
    "<13>Feb 28 12:00:00 grüße ☃: snow",
    "<16>1 2017-02-06T13:14:15.003Z 192.168.0.1 fluentd - - - Hi, from Fluentd!",
    '<16>1 2017-02-06T13:14:15Z 192.168.0.1 fluentd 11111 ID24224 [a@1 x="3" y="A"][b@1 z="4"] [Hi] there]!',
    '<16>1 2017-02-06T13:14:15.003+09:00 h fluentd 11111 ID24224 [a@1 x="q\\"q"] text',
    '<16>1 2017-02-06T13:14:15.003Z h fluentd 11111 ID24224 [a@1 x="3"]',
    "<16>1 2017-02-06T13:14:15.123456Z h i p m -",
    "<16>1 2017-02-06T13:14:15.003Z h i p m - many\nlines\nhere",
    "<6>2017 nonsense",
    "no priority",
    "<>Feb 28 12:00:00 h a: b",
    "<6>Xeb 28 12:00:00 h a: b",
    "",
]


def free_ports(count):
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def source(index, port, form, engine):
    return (
        f"@type syslog\nport {port}\nbind 127.0.0.1\ntag s{index}\nemit_unmatched_lines true\nfacility_key f\n"
        f"severity_key s\n<parse>\nmessage_format {form}\nparser_engine {engine}\n</parse>\n"
    )


def sent(port, message):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(message.encode(), ("127.0.0.1", port))


def theirs(tmp_path):
    command = need_fluentd()
    ports = free_ports(len(PARSERS))
    text = "".join(
        f"<source>\n{source(index, port, *parser)}</source>\n"
        for index, (port, parser) in enumerate(zip(ports, PARSERS, strict=True))
    )
    text += "<match s*.**>\n@type stdout\n</match>\n"
    file = tmp_path / "f.conf"
    file.write_text(text)
    lines = []
    with subprocess.Popen([*command, "-c", str(file)], stdout=subprocess.PIPE, text=True) as peer:
        reader = threading.Thread(target=lines.extend, args=[iter(peer.stdout.readline, "")])
        reader.start()
        until(lambda: any("worker is now running" in line for line in lines))
        for port in ports:
            for message in MESSAGES:
                sent(port, message)
                time.sleep(0.001)
        wanted = len(MESSAGES) * len(PARSERS)
        until(lambda: sum(" s" in line and ": {" in line for line in lines) >= wanted)
        peer.terminate()
        reader.join()
    found = {}
    for line in lines:
        head, brace, rest = line.partition(": {")
        if brace and "[" not in head:
            day, clock, zone, tag = head.split()
            stamp = datetime.strptime(f"{day} {clock[:8]} {zone}", "%Y-%m-%d %H:%M:%S %z").timestamp()
            stamp = f"{stamp:.0f}{clock[8:]}"
            found.setdefault(int(tag[1]), []).append(shown(stamp, tag, json.loads("{" + rest)))
    return found


def shown(stamp, tag, record):
    return (None if "unmatched" in tag else stamp, tag, record)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def ours(index, form, engine):
    async with running(source(index, 0, form, engine)) as rig:
        for message in MESSAGES:
            sent(rig.port, message)
            count = len(rig.taken.records)
            await rig.events(count + 1)
        return [
            shown(f"{time_ // 10**9}.{time_ % 10**9:09d}", tag, record)
            for tag, events in rig.taken.batches
            for time_, record in events
        ]


def test_the_same_events(tmp_path):
    peers = theirs(tmp_path)
    for index, (form, engine) in enumerate(PARSERS):
        mine = asyncio.run(ours(index, form, engine))
        for message, one, other in zip(MESSAGES, mine, peers[index], strict=True):
            assert one == other, (form, engine, message)
