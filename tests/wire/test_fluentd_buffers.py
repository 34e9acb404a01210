"""Buffers that change hands between a real Fluentd and us, both ways: nothing is lost, nothing comes twice."""

import asyncio
import contextlib
import os
import signal

import msgpack
import pytest

from headrace.cli import main
from headrace.pipeline import codec
from headrace.pipeline.context import Settings
from headrace.pipeline.event import unpack_events
from headrace.testing.pipelines import Kit, TransientError
from headrace.testing.plugin import free_port, need_fluentd

pytestmark = [pytest.mark.fluentd, pytest.mark.slow]

SENDER = """
<source>
  @type sample
  tag a.b
  sample {{"text": "caf\u00e9"}}
  auto_increment_key n
  rate 200
</source>
<match a.**>
  @type forward
  @id out
  <server>
    host 127.0.0.1
    port {port}
  </server>
  heartbeat_type none
  <buffer {keys}>
    @type {kind}
    path {path}
    flush_interval {interval}
    flush_at_shutdown false
    chunk_limit_records 30
    retry_wait 1s
    compress {compress}
  </buffer>
</match>
"""


@contextlib.asynccontextmanager
async def fluentd(folder, configuration):
    (folder / "fluent.conf").write_text(configuration)
    with (folder / "fluentd.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *need_fluentd(),
            *("-c", str(folder / "fluent.conf"), "--no-supervisor"),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(20):
                await child.wait()
        except TimeoutError:
            os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


async def until(condition, folder, seconds=60):
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail((folder / "fluentd.log").read_text(errors="replace"))


def ours(text):
    """The same configuration with an output that a test can read."""
    _head, _, rest = text.partition("<match")
    rest = rest.replace("@type forward", "@type script", 1)
    before, _, after = rest.partition("  <server>")
    return "<match" + before + after.partition("heartbeat_type none")[2]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("kind", "keys", "compress"),
    [("file", "tag", "text"), ("file", "tag,n", "gzip"), ("file_single", "tag", "text")],
)
async def test_we_deliver_what_fluentd_left(tmp_path, stop, kind, keys, compress):
    folder = tmp_path / "b"
    text = SENDER.format(port=free_port(), keys=keys, kind=kind, path=folder, interval="1h", compress=compress)
    async with fluentd(tmp_path, text) as child:
        await until(
            lambda: (folder.is_dir() and len(list(folder.glob("*.q*"))) >= 3) or len(list(folder.glob("*.b*"))) > 99,
            tmp_path,
        )
        os.killpg(child.pid, stop)
    kit = await Kit(ours(text), settings=Settings(root_dir=str(tmp_path / "root"))).start()
    await kit.work()
    await kit.stop()
    numbers = sorted(record["n"] for record in kit.script.got)
    assert len(numbers) >= 30
    assert numbers == list(range(len(numbers)))
    assert all(record["text"] == "caf\u00e9" for record in kit.script.got)
    assert {meta.tag for meta in kit.script.metas} == {"a.b"}
    assert not [path for path in folder.iterdir() if path.name.startswith(("buffer", "fsb"))]


class Receiver(asyncio.Protocol):
    """A forward server that takes everything."""

    got: list

    def connection_made(self, transport):
        self._unpacker = msgpack.Unpacker(raw=True)

    def data_received(self, data):
        self._unpacker.feed(data)
        for message in self._unpacker:
            data = codec.decompress(codec.sniffed(message[1]), message[1])
            self.got += [record["n"] for _time, record in unpack_events(data)]


@pytest.mark.parametrize(("kind", "compress"), [("file", "text"), ("file", "gzip"), ("file_single", "text")])
async def test_fluentd_delivers_what_we_exported(tmp_path, kind, compress, capsys):
    folder = tmp_path / "b"
    port = free_port()
    text = SENDER.format(port=port, keys="tag", kind=kind, path=folder, interval="1s", compress=compress)
    text = "<match" + text.partition("<match")[2]
    kit = await Kit(ours(text), settings=Settings(root_dir=str(tmp_path / "root"))).start()
    kit.script.then = TransientError("down")
    for number in range(200):
        await kit.emit("a.b", {"n": number})
    await kit.work()
    await kit.stop()
    conf = tmp_path / "ours.conf"
    # Where the forward output does not run here, any output with the same buffer tells where it is.
    conf.write_text(ours(text).replace("@type script", "@type http\n  endpoint http://127.0.0.1:9/"))
    assert main(["buffers", "export", str(conf)]) == 0
    Receiver.got = []
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", port)
    async with fluentd(tmp_path, text):
        await until(lambda: len(Receiver.got) >= 200, tmp_path)
    server.close()
    assert sorted(Receiver.got) == list(range(200))
    assert not [path for path in folder.iterdir() if path.name.startswith(("buffer", "fsb"))]
