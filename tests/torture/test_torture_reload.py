"""Reloads that change one component at a time under load, and reloads with a destination that is dead (W04, W05)."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import time

import pytest
from torture_rig import Client, Sink, drained, judge, until

from headrace.testing.plugin import free_ports

CONF = """\
<source>
  @type http
  port {port}
  bind 127.0.0.1
  keepalive_timeout 60s
</source>
<filter t>
  @type grep
  <regexp>
    key x
    pattern /x/
  </regexp>
</filter>
<match t>
  @type copy
  <store>
    @type http
    @id good
    endpoint http://127.0.0.1:{target}/
    reuse_connections true
    <format>
      @type json
    </format>
    <buffer>
      @type file
      path {folder}/good
      flush_interval 0.1s
      flush_thread_count 2
      retry_wait 0.1s
      retry_max_interval 0.5s
      retry_forever true
    </buffer>
  </store>
  <store ignore_error>
    @type http
    @id dead
    endpoint http://127.0.0.1:{dead}/
    open_timeout 60
    read_timeout 60
    <buffer>
      @type file
      path {folder}/dead
      flush_interval 0.1s
      retry_wait 0.1s
      retry_max_interval 0.5s
      retry_forever true
    </buffer>
  </store>
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""
END = 5.0
"""Seconds in which a reload is over, in the new configuration or in the old one."""

CHANGES = {
    "nothing": lambda text, more: text,
    "a source's parameter": lambda text, more: text.replace("keepalive_timeout 60s", "keepalive_timeout 61s"),
    "a second source": lambda text, more: text + f"<source>\n@type http\nport {more}\nbind 127.0.0.1\n</source>\n",
    "no second source": lambda text, more: text.split("</label>\n")[0] + "</label>\n",
    "another port": lambda text, more: text.replace("@type http\n  port", "@type http\n  backlog 512\n  port", 1),
    "a filter": lambda text, more: text.replace("pattern /x/", "pattern /x+/"),
    "no filter": lambda text, more: re.sub(r"(?s)<filter.*</filter>\n", "", text),
    "the good output": lambda text, more: text.replace("flush_thread_count 2", "flush_thread_count 3"),
    "the good buffer": lambda text, more: text.replace("retry_wait 0.1s", "retry_wait 0.2s", 1),
    "the dead output": lambda text, more: text.replace("open_timeout 60", "open_timeout 59"),
    "the workers": lambda text, more: text + "<system>\n  workers 2\n</system>\n",
    "one worker again": lambda text, more: text.replace("<system>\n  workers 2\n</system>\n", ""),
    "a mistake": lambda text, more: text.replace("@type copy", "@type cpy"),
    "the mistake mended": lambda text, more: text.replace("@type cpy", "@type copy"),
    "a port that is taken": lambda text, more: text + f"<source>\n@type udp\ntag u\nport {more}\n</source>\n",
}


class Running:
    """A running headrace, and what its reloads say."""

    def __init__(self, headrace, path) -> None:
        self.path = path
        self.process = headrace("fluentd", "-c", path)
        self.generation = 1

    def count(self, text: str) -> int:
        return self.process.output.count(text)

    async def up(self) -> None:
        await until(lambda: self.count("worker is now running"), "the start")

    async def reload(self) -> bool:
        """Whether the new configuration serves."""
        failed = self.count("reload failed")
        serves = self.count(" serves, the workers of ")
        self.process.send(signal.SIGHUP)
        await until(
            lambda: self.count("reload failed") > failed or self.count(" serves, the workers of ") > serves, "its end"
        )
        return self.count("reload failed") == failed


@pytest.mark.parametrize("dead", ["refuses", "hangs"])
async def test_one_change_after_the_other(headrace, prefix, scale, seen, dead):
    port, target, more, nobody, taken = free_ports(5)
    hole = socket.create_server(("127.0.0.1", nobody)) if dead == "hangs" else None  # accepts and never answers
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    holder.bind(("0.0.0.0", taken))
    path = prefix / "fluent.conf"
    text = CONF.format(port=port, target=target, dead=nobody, folder=prefix)
    path.write_text(text)
    with contextlib.ExitStack() as stack:
        stack.enter_context(holder)
        if hole is not None:
            stack.enter_context(hole)
        async with Sink(target) as sink:
            running = Running(headrace, path)
            await running.up()
            client = Client(port)
            client.start(pause=0.005)
            longest = 0.0
            names = list(CHANGES) if scale.full or dead == "refuses" else ["a filter", "a mistake"]
            for name in names:
                before = len(client.acked)
                await until(lambda before=before: len(client.acked) > before + 20, f"answers before {name}")
                text = CHANGES[name](text, taken if "taken" in name else more)
                path.write_text(text)
                gone = running.count("exited with code 0")
                started = time.monotonic()
                serves = await running.reload()
                assert serves == (name not in {"a mistake", "a port that is taken"}), running.process.output[-2000:]
                if serves:  # the old workers do not stay for the sake of a destination that is dead
                    await until(lambda gone=gone: running.count("exited with code 0") > gone, "the old worker's end")
                longest = max(longest, time.monotonic() - started)
                seen.progress(names.index(name) + 1, len(names), name)
            before = len(client.acked)
            await until(lambda: len(client.acked) > before + 20, "answers at the end")
            await client.stop()
            await drained(client.acked, sink, 20)
            verdict = judge(client.acked, sink)
            assert running.process.stop() == 0
            seen(f"a dead sink {dead}: {len(names)} reloads, the longest {longest:.1f} s: {verdict}")
            assert verdict.lost == []
            assert verdict.doubled == 0
            assert not client.refused
            if scale.full:
                assert longest < END
            assert " not done after" not in running.process.output
        # What could not go to the dead destination is there, all of it.
        if dead == "refuses":
            path.write_text(CONF.format(port=port, target=target, dead=nobody, folder=prefix))
            async with Sink(nobody) as late, Sink(target):
                again = Running(headrace, path)
                await again.up()
                await drained(client.acked, late, 30)
                verdict = judge(client.acked, late)
                assert again.process.stop() == 0
                seen(f"and at the dead sink, when it lives: {verdict}")
                assert verdict.lost == []
