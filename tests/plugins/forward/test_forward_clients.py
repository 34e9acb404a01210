"""Real clients of the Forward Protocol: fluent-logger from PyPI, and from npm in each of its modes."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from fluent.asyncsender import FluentSender as AsyncSender
from fluent.handler import FluentHandler, FluentRecordFormatter
from fluent.sender import EventTime, FluentSender
from forward_rig import forward
from test_in_forward import certificates, secured

from headrace.testing.plugin import need, need_file

HERE = Path(__file__).parent
MODULES = HERE.parents[2] / "build" / "node" / "node_modules"
RECORDS = [{"n": number, "text": "grüße ☃", "nested": {"list": [1, 2.5, None, True]}} for number in range(30)]


@pytest.mark.parametrize("nanoseconds", [False, True])
async def test_fluent_logger_of_python(nanoseconds):
    async with forward() as rig:

        def send():
            sender = FluentSender("app", port=rig.port, host="127.0.0.1", nanosecond_precision=nanoseconds)
            for record in RECORDS:
                assert sender.emit("sub", record), sender.last_error
            assert sender.emit_with_time("sub", EventTime(1_700_000_000.5), {"n": "timed"}), sender.last_error
            sender.close()

        await asyncio.to_thread(send)
        await rig.until(lambda: len(rig.records) == len(RECORDS) + 1)
        assert rig.records[:-1] == RECORDS
        assert {tag for tag, _, _ in rig.direct.events} == {"app.sub"}
        assert rig.direct.events[-1][1] == 1_700_000_000_500_000_000
        assert bool(rig.direct.events[0][1] % 1_000_000_000) is nanoseconds
        assert rig.stats["refused"] == 0


async def test_the_async_sender_and_the_handler_of_logging():
    async with forward() as rig:

        def send():
            sender = AsyncSender("app", port=rig.port, host="127.0.0.1")
            for record in RECORDS:
                sender.emit("sub", record)
            sender.close()
            logger = logging.Logger("x")  # noqa: LOG001 - known to nobody else
            handler = FluentHandler("logs", host="127.0.0.1", port=rig.port)
            handler.setFormatter(FluentRecordFormatter())
            logger.addHandler(handler)
            logger.warning("hello %s", "world")
            handler.close()

        await asyncio.to_thread(send)
        await rig.until(lambda: len(rig.records) == len(RECORDS) + 1)
        assert rig.records[-1]["message"] == "hello world"


async def node(rig, records=RECORDS, **options):
    need_file(MODULES / "fluent-logger", "fluent-logger from npm is not installed (scripts/install-clients.sh)")
    options = {"host": "127.0.0.1", "port": rig.port, "timeout": 10.0, "flushInterval": 20, **options}
    process = await asyncio.create_subprocess_exec(
        need("node"),
        str(HERE / "send.js"),
        json.dumps({"options": options, "records": records}),
        str(MODULES),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, output.decode()


@pytest.mark.parametrize("acks", [True, False])
@pytest.mark.parametrize("mode", ["Message", "PackedForward", "CompressedPackedForward"])
async def test_fluent_logger_of_node(mode, acks):
    async with forward() as rig:
        status, output = await node(rig, eventMode=mode, requireAckResponse=acks)
        assert (status, output) == (0, "")
        await rig.until(lambda: len(rig.records) == len(RECORDS))
        assert rig.records == RECORDS
        assert {tag for tag, _, _ in rig.direct.events} == {"node.sub"}
        # Packed messages of this client always name their chunk; their "size" is in bytes, which counts nothing.
        assert bool(rig.stats["acknowledged"]) is (acks or mode != "Message")
        assert rig.stats["events"] == len(RECORDS)


async def test_fluent_logger_of_node_with_key_user_and_tls(tmp_path):
    certificates(tmp_path)
    transport = f"<transport tls>\ncert_path {tmp_path}/cert.pem\nprivate_key_path {tmp_path}/key.pem\n</transport>\n"
    security = {"clientHostname": "client", "sharedKey": "k", "username": "alice", "password": "secret"}
    tls = {"caFile": str(tmp_path / "ca.pem"), "servername": "localhost"}
    async with forward(transport + secured(user_auth="true")) as rig:
        status, output = await node(rig, security=security, tls=True, tlsOptions=tls, requireAckResponse=True)
        assert (status, output) == (0, "")
        assert rig.records == RECORDS
        status, output = await node(rig, security={**security, "sharedKey": "wrong"}, tls=True, tlsOptions=tls)
        assert status == 1
        assert "shared_key mismatch" in output
        assert rig.stats["denied"] == 1
