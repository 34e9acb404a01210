"""A real Fluentd sends to our forward source: acknowledged, compressed, with a key and a user, by TLS."""

import asyncio
import json

import pytest
from forward_rig import forward
from test_in_forward import certificates, secured

from headrace.testing.plugin import need_fluentd

pytestmark = [pytest.mark.fluentd, pytest.mark.slow]

PATIENCE = 60.0  # Ruby starts slowly on a busy machine

SENDER = """
<system>
  log_level info
</system>
<source>
  @type sample
  sample {sample}
  auto_increment_key n
  rate 50
  tag app.log
</source>
<match app.**>
  @type forward
  {parameters}
  heartbeat_type {heartbeat}
  heartbeat_interval 1s
  <server>
    name localhost
    host 127.0.0.1
    port {port}
    {server}
  </server>
  <buffer tag>
    flush_interval 0.2s
    chunk_limit_records 20
  </buffer>
</match>
"""


async def sent(rig, launcher, folder, parameters, server="", heartbeat="transport"):
    """Events of a Fluentd that was stopped after some."""
    command = need_fluentd()
    text = SENDER.format(
        sample=json.dumps({"m": "grüße"}), parameters=parameters, server=server, port=rig.port, heartbeat=heartbeat
    )
    (folder / "sender.conf").write_text(text)
    process = launcher.start([*command, "-c", str(folder / "sender.conf")])
    try:
        async with asyncio.timeout(PATIENCE):
            while len(rig.records) < 100 or not process.running:
                assert process.running, process.output
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(process.output) from None
    await asyncio.to_thread(process.stop)
    numbers = [record["n"] for record in rig.records]
    assert sorted(numbers) == list(range(len(numbers))), "each event once"
    assert rig.stats["refused"] == rig.stats["invalid_events"] == 0
    assert {tag for tag, _, _ in rig.direct.events} == {"app.log"}
    return process.output


@pytest.mark.parametrize("keepalive", ["true", "false"])
async def test_acknowledged(prefix, headrace, keepalive):
    async with forward() as rig:
        output = await sent(rig, headrace, prefix, f"require_ack_response true\nkeepalive {keepalive}")
        assert rig.stats["acknowledged"] == rig.stats["messages"] >= 5
        assert "failed" not in output
        assert "no response" not in output


async def test_compressed_with_heartbeats_by_udp(prefix, headrace):
    async with forward() as rig:
        await sent(rig, headrace, prefix, "compress gzip\nrequire_ack_response true", heartbeat="udp")
        assert rig.stats["heartbeats"] >= 1


async def test_with_a_key_and_a_user(prefix, headrace):
    security = "<security>\nself_hostname client\nshared_key k\n</security>\nrequire_ack_response true"
    async with forward(secured(user_auth="true")) as rig:
        await sent(rig, headrace, prefix, security, server="username alice\npassword secret")
        assert rig.stats["denied"] == 0


async def test_by_tls(prefix, headrace):
    certificates(prefix)
    transport = f"<transport tls>\ncert_path {prefix}/cert.pem\nprivate_key_path {prefix}/key.pem\n</transport>\n"
    tls = f"transport tls\ntls_cert_path {prefix}/ca.pem\ntls_verify_hostname true\nrequire_ack_response true"
    async with forward(transport) as rig:
        await sent(rig, headrace, prefix, tls)
