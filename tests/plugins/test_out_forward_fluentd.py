"""The forward output with a real Fluentd as its receiver: one Fluentd, a port for each way of asking."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import node_rig as rig
import pytest

from headrace.commands.main import main
from headrace.pipeline.event import NS, Batch
from headrace.testing.plugin import free_ports, need_fluentd
from headrace.testing.process import Launcher

pytestmark = [pytest.mark.fluentd, pytest.mark.slow]

CONF = """\
<source>
  @type forward
  port PLAIN
  bind 127.0.0.1
</source>
<source>
  @type forward
  port SECURE
  bind 127.0.0.1
  <security>
    self_hostname receiver
    shared_key secret
    user_auth true
    <user>
      username bob
      password pw
    </user>
  </security>
</source>
<source>
  @type forward
  port TLS
  bind 127.0.0.1
  <transport tls>
    cert_path FOLDER/localhost_cert.pem
    private_key_path FOLDER/localhost_key.pem
    client_cert_auth true
    ca_path FOLDER/ca_cert.pem
  </transport>
</source>
<match fluent.**>
  @type null
</match>
<match **>
  @type stdout
  <format>
    @type json
  </format>
</match>
"""


class Peer:
    """The running Fluentd."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="hrf-", dir="/tmp"))
        self.plain, self.secure, self.tls = free_ports(3)
        assert main(["ca", str(self.folder), "--server", "localhost", "--client", "client"]) == 0
        text = CONF.replace("PLAIN", str(self.plain)).replace("SECURE", str(self.secure)).replace("TLS", str(self.tls))
        text = text.replace("FOLDER", str(self.folder))
        (self.folder / "fluent.conf").write_text(text)
        self.launcher = Launcher(self.folder)
        self.process = self.launcher.start([*need_fluentd(), "-c", str(self.folder / "fluent.conf")])
        self.process.wait_for("worker is now running", timeout=60)

    def numbers(self, run):
        found = []
        for line in self.process.output.splitlines():
            if line.startswith("{") and line.endswith("}"):
                record = json.loads(line)
                if record.get("run") == run:
                    found.append(record["n"])
        return found

    def end(self):
        self.launcher.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def peer():
    made = Peer()
    yield made
    made.end()


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


SECURITY = "<security>\nself_hostname sender\nshared_key secret\n</security>\n"
BUFFER = "flush_mode immediate\nchunk_limit_records 10\nflush_thread_count 2"


def server(port, extra="", host="127.0.0.1"):
    return f"<server>\nhost {host}\nport {port}\n{extra}\n</server>\n"


async def send(peer, run, text, count=200):
    """Send numbered events; the figures of the node."""
    async with rig.output(text, buffer=BUFFER) as (running, emit):
        for n in range(count):
            await emit("a.tag", Batch.one(1_700_000_000 * NS + n, {"run": run, "n": n}))
        await running.idle()
        await until(lambda: len(peer.numbers(run)) >= count)
        (figures,) = running.stats()["nodes"].values()
        assert "failed to flush" not in running.log.getvalue()
    assert sorted(peer.numbers(run)) == list(range(count))
    return figures


ACK = "require_ack_response true\n"
KEEP = "keepalive true\n"


async def test_without_acknowledgements(peer):
    figures = await send(peer, "plain", "heartbeat_type none\n" + server(peer.plain))
    assert figures["acks"] == 0


async def test_acknowledged(peer):
    figures = await send(peer, "ack", ACK + server(peer.plain))
    assert figures["acks"] == figures["sent"] > 0
    assert figures["reused"] == 0


async def test_acknowledged_on_kept_connections(peer):
    figures = await send(peer, "keep", ACK + KEEP + server(peer.plain))
    assert figures["acks"] == figures["sent"]
    assert figures["opened"] <= 2
    assert figures["reused"] > 10


async def test_gzip(peer):
    figures = await send(peer, "gzip", ACK + KEEP + "compress gzip\n" + server(peer.plain))
    assert figures["acks"] == figures["sent"]


async def test_time_as_integer(peer):
    await send(peer, "integer", ACK + KEEP + "time_as_integer true\n" + server(peer.plain), 20)


async def test_shared_key_and_user(peer):
    text = ACK + KEEP + SECURITY + server(peer.secure, "username bob\npassword pw")
    figures = await send(peer, "secure", text)
    assert figures["opened"] <= 2


async def test_shared_key_without_keepalive(peer):
    await send(peer, "secure once", SECURITY + server(peer.secure, "username bob\npassword pw"), 50)


@pytest.mark.parametrize(
    ("security", "node", "told"),
    [
        (SECURITY.replace("secret", "wrong"), "username bob\npassword pw", "shared_key mismatch"),
        (SECURITY, "username bob\npassword no", "username/password mismatch"),
        (SECURITY.replace("sender", "receiver"), "username bob\npassword pw", "same hostname"),
    ],
)
async def test_who_is_refused_hears_why(peer, security, node, told):
    async with rig.output(ACK + security + server(peer.secure, node)) as (running, emit):
        await emit("t", Batch.one(NS, {"run": "refused", "n": 1}))
        await running.failed(1)
        assert told in running.log.getvalue()
    assert peer.numbers("refused") == []


async def test_tls_with_a_client_certificate(peer):
    folder = peer.folder
    text = (
        f"{ACK}{KEEP}transport tls\ntls_cert_path {folder}/ca_cert.pem\ntls_client_cert_path {folder}/client_cert.pem\n"
        f"tls_client_private_key_path {folder}/client_key.pem\n{server(peer.tls, host='localhost')}"
    )
    figures = await send(peer, "tls", text)
    assert figures["opened"] <= 2


async def test_tls_without_a_client_certificate_is_refused(peer):
    text = f"{ACK}transport tls\ntls_cert_path {peer.folder}/ca_cert.pem\n{server(peer.tls, host='localhost')}"
    async with rig.output(text) as (running, emit):
        await emit("t", Batch.one(NS, {"run": "naked", "n": 1}))
        await running.failed(1)
    assert peer.numbers("naked") == []


async def test_heartbeats_by_udp(peer):
    text = "heartbeat_type udp\nheartbeat_interval 0.1\nrecover_wait 0.3\n" + server(peer.plain)
    async with rig.output(text) as (running, _emit):
        (node,) = running.plugin._nodes.values()
        node.detach()
        await until(lambda: node.available)
        assert "recovered forwarding server" in running.log.getvalue()


async def test_heartbeats_by_transport_with_everything(peer):
    text = "heartbeat_interval 0.1\n" + SECURITY + server(peer.secure, "username bob\npassword pw")
    async with rig.output(text) as (running, _emit):
        (node,) = running.plugin._nodes.values()
        await until(lambda: node.counters.heartbeats >= 5)
        assert node.counters.heartbeats_failed == 0
