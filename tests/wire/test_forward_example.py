"""The pair of examples/forward: certificates by `headrace ca`, TLS, a shared key, and nodes that are killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import wire_rig as rig

from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "forward"


def test_an_edge_and_a_hub(prefix, headrace):
    done = headrace.run("headrace", "ca", prefix / "certs", "--server", "localhost", "--client", "edge")
    assert done.returncode == 0, done.stderr
    entry, hub_port = free_ports(2)
    env = {
        "CERTS": os.fspath(prefix / "certs"),
        "SHARED_KEY": "a key that no log shows",
        "EDGE_PORT": str(entry),
        "HUB_PORT": str(hub_port),
        "OUT": os.fspath(prefix / "out"),
    }

    def start(name, port):
        conf = prefix / f"{name}.conf"
        text = (EXAMPLE / f"{name}.conf").read_text().replace("flush_interval 1s", "flush_interval 0.1s")
        conf.write_text(text.replace("retry_max_interval 5s", "retry_max_interval 0.3s") + rig.NO_LOG_EVENTS)
        process = headrace("headrace", "run", conf, env={**env, "BUFFER": os.fspath(prefix / f"{name}.buffer")})
        rig.wait_listens(port, process)
        return process

    def written():
        lines = b"".join(path.read_bytes() for path in sorted((prefix / "out").glob("*"))).splitlines()
        return [json.loads(line)["n"] for line in lines]

    def post(first):
        for number in range(first, first + 20):
            assert rig.post(entry, "/a.tag", b'{"n":%d}' % number).status == 200

    hub = start("hub", hub_port)
    edge = start("edge", entry)
    post(0)
    wait_until(lambda: sorted(written()) == list(range(20)), "twenty events")
    # A file that is appended to cannot tell a repetition: the hub is not killed between a write and its note of it.
    wait_until(lambda: not rig.plugin(rig.stats(headrace, hub), "output_file")["buffered"], "an empty buffer")
    rig.kill(hub)
    post(20)
    rig.kill(edge)
    edge = start("edge", entry)
    hub = start("hub", hub_port)
    post(40)
    wait_until(lambda: sorted(written()) == list(range(60)), "sixty events")
    figures = rig.plugin(rig.stats(headrace, edge), "output_forward")
    (node,) = figures["nodes"].values()
    assert node["acks"] >= 1
    for process in (edge, hub):
        assert process.stop() == 0
        assert "a key that no log shows" not in process.output
        assert "Traceback" not in process.output
    assert sorted(written()) == list(range(60))
