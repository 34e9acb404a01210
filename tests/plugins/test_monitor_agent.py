"""monitor_agent: pages and fields, filters by query, secrets, events at an interval."""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import time
import urllib.request

import pytest
from http_rig import client

from headrace.core.clock import Clock
from headrace.core.listener import open_listener
from headrace.pipeline.context import Settings
from headrace.testing.pipelines import Direct, Kit
from headrace.testing.plugin import need_fluentd

TEXT = """
<source>
  @type monitor_agent
  @id mon
  bind 127.0.0.1
  port {port}
  {lines}
</source>
<source>
  @type sample
  @id smp
  tag a.b
</source>
<filter a.**>
  @type grep
  @id g
  <regexp>
    key message
    pattern /x/
  </regexp>
</filter>
<match a.**>
  @type http
  @id h
  endpoint http://127.0.0.1:1/x
  <buffer time>
    timekey 5
    timekey_wait 0
  </buffer>
</match>
<match n.**>
  @type null
  @id n
</match>
<match c.**>
  @type copy
  @id cc
  <store>
    @type null
    @id c1
  </store>
</match>
<label @l>
  <match **>
    @type null
    @id inner
  </match>
</label>
"""


@contextlib.asynccontextmanager
async def agent(lines="", text=TEXT, **settings):
    kit = Kit(text.format(port=0, lines=lines), settings=Settings(hostname="host", **settings))
    kit.problems.raise_first()
    loop = asyncio.get_running_loop()
    sock = open_listener(("127.0.0.1", 0))
    sockets = {spec.key: sock for spec in kit.pipeline.listens}
    kit.port = sock.getsockname()[1]
    await kit.pipeline.start(loop, Clock(loop), sockets)
    try:
        async with client(kit.port) as connection:
            yield kit, connection
    finally:
        await kit.pipeline.stop(1.0)


async def get(connection, path):
    status, headers, body = await connection.ask(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    return status, headers["content-type"], body


async def plugins(connection, query=""):
    status, kind, body = await get(connection, f"/api/plugins.json{query}")
    assert (status, kind) == (200, "application/json")
    return json.loads(body)["plugins"]


async def test_all_plugins_in_order():
    async with agent() as (_, connection):
        found = await plugins(connection)
        ids = [one["plugin_id"] for one in found]
        assert [name for name in ids if "kit_log" not in name] == ["mon", "smp", "h", "n", "cc", "c1", "g", "inner"]
        kinds = {one["plugin_id"]: (one["plugin_category"], one["type"], one["output_plugin"]) for one in found}
        assert kinds["smp"] == ("input", "sample", False)
        assert kinds["h"] == ("output", "http", True)
        assert kinds["cc"] == ("output", "copy", False)
        assert kinds["g"] == ("filter", "grep", False)


async def test_figures_count():
    async with agent("include_retry true") as (kit, connection):
        await kit.emit("n.x", {"a": 1}, {"a": 2})
        await kit.emit("a.x", {"message": "x"}, time=1_700_000_001_000_000_000)
        (null,) = await plugins(connection, "?@id=n")
        assert (null["emit_count"], null["emit_records"], null["retry_count"]) == (1, 2, 0)
        (http,) = await plugins(connection, "?type=http")
        assert http["emit_records"] == 1
        assert http["buffer_timekeys"] == [1_700_000_000]
        assert http["buffer_stage_length"] + http["buffer_queue_length"] == 1
        assert http["retry"] == {} or http["retry"]["steps"] >= 1
        (grep,) = await plugins(connection, "?@type=grep")
        assert grep["emit_records"] >= 1


async def test_retry_tells_of_the_next_try():
    async with agent("include_retry true", TEXT.replace("timekey_wait 0", "timekey_wait 0\nflush_mode immediate")) as (
        kit,
        connection,
    ):
        await kit.emit("a.x", {"message": "x"})
        async with asyncio.timeout(10):
            while not (retry := (await plugins(connection, "?id=h"))[0]["retry"]):
                await asyncio.sleep(0.01)
        assert retry["steps"] >= 1
        stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}")
        assert stamp.fullmatch(retry["start"])
        assert stamp.fullmatch(retry["next_time"])
        assert (await plugins(connection, "?id=h&with_retry=false"))[0].get("retry") is None


@pytest.mark.parametrize(
    ("query", "ids"), [("?tag=n.x", ["n"]), ("?tag=zzz", []), ("?@id=nobody", []), ("?type=null", ["n", "c1", "inner"])]
)
async def test_queries(query, ids):
    async with agent() as (_, connection):
        assert [one["plugin_id"] for one in await plugins(connection, query)] == ids


async def test_config_is_shown_only_when_told_to_and_never_with_secrets():
    text = TEXT.replace("endpoint http://", "tls_private_key_passphrase sesame\nendpoint http://me:sesame@")
    async with agent("", text) as (_, connection):
        assert "config" not in (await plugins(connection, "?@id=h&with_config=true"))[0]
    async with agent("include_config true", text) as (_, connection):
        (one,) = await plugins(connection, "?@id=h")
        assert one["config"]["endpoint"] == "http://me:xxxxxx@127.0.0.1:1/x"
        assert one["config"]["tls_private_key_passphrase"] == "xxxxxx"
        for path in ("/api/plugins.json", "/api/plugins", "/api/config.json", "/api/plugins.json?debug=1"):
            assert b"sesame" not in (await get(connection, path))[2]


async def test_debug():
    async with agent("include_debug_info true") as (kit, connection):
        await kit.emit("a.x", {"message": "x"})
        (one,) = await plugins(connection, "?@id=h&debug=1")
        assert one["instance_variables"]["received"] == 1
        (one,) = await plugins(connection, "?@id=h&with_ivars=received,nothing")
        assert one["instance_variables"] == {"received": 1}
        assert b"\n  " in (await get(connection, "/api/config.json?debug=1"))[2]
    async with agent() as (_, connection):
        assert "instance_variables" not in (await plugins(connection, "?@id=h&debug=1"))[0]


async def test_text_twins():
    async with agent() as (_, connection):
        status, kind, body = await get(connection, "/api/plugins?@id=n")
        assert (status, kind) == (200, "text/plain")
        assert body == (
            b"plugin_id:n\tplugin_category:output\ttype:null\toutput_plugin:true\tretry_count:0\temit_records:0\t"
            b"emit_size:0\temit_count:0\twrite_count:0\trollback_count:0\tslow_flush_count:0\tflush_time_count:0\n"
        )
        status, kind, body = await get(connection, "/api/config")
        assert body.startswith(b"pid:%d\tppid:" % os.getpid())


async def test_other_pages():
    async with agent() as (_, connection):
        for path in ("/", "/api", "/api/", "/api/nix", "/api/plugins.xml", "/api/plugins/x"):
            assert await get(connection, path) == (404, "application/json", b'{"message":"Not found"}')
        status, _, _ = await connection.post("/api/plugins.json", b"{}")
        assert status == 405


async def test_figures_as_events():
    text = TEXT.replace("<match n.**>\n  @type null", "<match n.**>\n  @type direct")
    async with agent("tag n.monitor\nemit_interval 0.05", text) as (kit, _):
        direct = kit.of(Direct)
        async with asyncio.timeout(10):
            while len(direct.events) < 16:
                await asyncio.sleep(0.01)
        assert {tag for tag, _, _ in direct.events} == {"n.monitor"}
        records = [record for _, _, record in direct.events]
        assert {"mon", "h", "inner"} <= {record["plugin_id"] for record in records}
        assert not any("config" in record or "retry" in record for record in records)


def test_each_worker_has_a_port_of_its_own():
    for worker in (0, 2):
        kit = Kit(TEXT.format(port=24220, lines=""), settings=Settings(worker_id=worker, workers=3))
        assert [spec.address for spec in kit.pipeline.listens] == [f"127.0.0.1:{24220 + worker}"]


@pytest.mark.parametrize("lines", ["port 70000", "emit_interval 0"])
def test_what_is_refused(lines):
    assert Kit(TEXT.format(port=0, lines=lines)).errors


@pytest.mark.fluentd
def test_the_same_fields_as_fluentd(tmp_path):
    command = need_fluentd()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    file = tmp_path / "f.conf"
    file.write_text(TEXT.format(port=port, lines="include_config true\ninclude_retry true"))
    with subprocess.Popen([*command, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as peer:
        try:
            theirs = _fields(port)
        finally:
            peer.terminate()

    async def run():
        async with agent("include_config true\ninclude_retry true") as (_, connection):
            return {
                one["plugin_id"]: list(one) for one in await plugins(connection) if "kit_log" not in one["plugin_id"]
            }

    assert asyncio.run(run()) == theirs


def _fields(port):
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/plugins.json", timeout=10) as answer:
                return {one["plugin_id"]: list(one) for one in json.load(answer)["plugins"]}
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
