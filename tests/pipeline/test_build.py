"""fluent.conf to a pipeline: sections, workers, labels, <system>, and what is refused."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from headrace.errors import Error
from headrace.pipeline.context import Settings
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Source
from headrace.testing.pipelines import Direct, Kit, Script

MATCH = "<match **>\n@type direct\n</match>\n"


class Ticker(Source):
    name = "ticker"

    async def quiesce(self):
        self.router.emit("last", Batch.one(1, {"last": True}))


class Shared(Ticker):
    name = "shared"
    multi_workers_ready = True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<match **>\n</match>", "needs an @type"),
        ("<match **>\n@type nothing\n</match>", 'unknown output plugin "nothing"'),
        ("<matc **>\n@type direct\n</matc>", 'did you mean "match"'),
        ("<match **>\n@type direct\n<buffer>\n</buffer>\n</match>", "has no buffer"),
        ("<match **>\n@type direct\n<secondary>\n@type direct\n</secondary>\n</match>", "needs a buffered"),
        ("<match **>\n@type script\n<secondary>\n@type direct\n</secondary>\n</match>", "cannot be a <secondary>"),
        (
            "<match **>\n@type script\n<secondary>\n@type script\n<buffer>\n</buffer>\n</secondary>\n</match>",
            "cannot have a <buffer>",
        ),
        ("<match **>\n@type script\n<buffer time>\n</buffer>\n</match>", "timekey is not configured"),
        ("<match **>\n@type script\n<buffer>\nflush_intervall 1\n</buffer>\n</match>", 'did you mean "flush_interval"'),
        ("<match **>\n@type script\n<buffer>\n@type cloud\n</buffer>\n</match>", 'unknown buffer plugin "cloud"'),
        ("<match **>\n@type script\n<buffer>\nretry_max_times -1\n</buffer>\n</match>", "cannot be negative"),
        ("<match **>\n@type script\n<buffer>\ndecompression_size_limit 1m\n</buffer>\n</match>", "is not supported"),
        ("<match **>\n@type script\n<buffer>\nflush_thread_count 0\n</buffer>\n</match>", "at least 1"),
        (
            "<match **>\n@type script\n<buffer>\nflush_mode immediate\nflush_interval 1\n</buffer>\n</match>",
            "cannot stand beside",
        ),
        ("<match /(/>\n@type direct\n</match>", "tag pattern"),
        ("<label @A>\n</label>", "has no <match>"),
        ("<label>\n</label>", "needs a name"),
        ("<label @ROOT>\n</label>", "@ROOT"),
        (f"<label @A>\n{MATCH}</label>\n<label @A>\n{MATCH}</label>", "appears twice"),
        ("<source>\n@type ticker\n@label @X\n</source>", 'label "@X" is not defined'),
        ("<worker x>\n</worker>", "needs a worker's number"),
        ("<worker 1>\n</worker>", "there is no worker 1"),
        (f"<worker 0>\n{MATCH}</worker>\n<worker 0>\n</worker>", "two <worker> sections"),
        ("<worker 0>\n<system>\n</system>\n</worker>", "cannot have <system>"),
        ("<system>\n</system>\n<system>\n</system>", "second <system>"),
        ("<system>\nrpc_endpoint 1\n</system>", "is no HOST:PORT"),
        ("<system>\nwith_source_only true\n</system>", "is not supported"),
        ("<system>\nworkers 0\n</system>", "at least 1"),
        ("<system>\nfile_permission 9\n</system>", "octal"),
        ("<match **>\n@type direct\n@id x\n</match>\n<match **>\n@type direct\n@id x\n</match>", "used twice"),
    ],
)
def test_what_is_refused(text, message):
    kit = Kit(text, plugins=[Ticker])
    assert [error for error in kit.errors if message in error] != [], kit.errors
    assert kit.pipeline is None
    assert "test.conf:" in kit.errors[0]


def test_everything_wrong_is_told_at_once():
    kit = Kit(
        "<match a>\n@type x1\n</match>\n<match b>\n@type direct\nfoo 1\n</match>\n<filter **>\n@type y\n</filter>"
    )
    assert len(kit.errors) == 3


async def test_workers():
    text = f"""
<system>
  workers 3
</system>
<source>
  @type ticker
</source>
<source>
  @type shared
</source>
<worker 1-2>
  <source>
    @type ticker
  </source>
  {MATCH}
</worker>
"""
    counts = []
    for worker in range(3):
        kit = Kit(text, plugins=[Ticker, Shared], settings=Settings(worker_id=worker, workers=3))
        assert kit.errors == []
        plugins = [type(plugin).__name__ for plugin in kit.pipeline.plugins]
        counts.append((plugins.count("Ticker"), plugins.count("Shared"), plugins.count("Direct")))
    assert counts == [(1, 1, 0), (1, 1, 1), (1, 1, 1)]


async def test_outputs_start_first_and_sources_stop_first():
    kit = await Kit("<source>\n@type ticker\n@label @A\n</source>\n<label @A>\n<match **>\n@type script\n</match>\n</label>",
                    plugins=[Ticker]).start()  # fmt: skip
    await kit.stop()
    assert kit.script.got == [{"last": True}]


class Failing(Direct):
    name = "failing"

    async def start(self):
        raise OSError(13, "not allowed")


async def test_a_failed_start_stops_what_had_started():
    kit = Kit("<match a>\n@type script\n</match>\n<match b>\n@type failing\n</match>", plugins=[Failing])
    with pytest.raises(Error, match="not allowed"):
        await kit.start()
    assert kit.script.stopped == 1
    assert len(asyncio.all_tasks()) == 1


class Hanging(Direct):
    name = "hanging"

    async def stop(self):
        await asyncio.sleep(3600)


async def test_stop_returns_whatever_a_plugin_does(caplog):
    kit = await Kit("<match a>\n@type hanging\n</match>\n<match b>\n@type script\n</match>", plugins=[Hanging]).start()
    await kit.emit("b", {"n": 1})
    start = kit.clock.now()
    await kit.stop(60)
    assert kit.clock.now() - start < 20
    assert "does not end and is cancelled" in caplog.text
    assert kit.script.got == [{"n": 1}]


async def test_figures():
    kit = await Kit("<system>\nlog_level debug\n</system>\n<match a>\n@type script\n@id s\n</match>\n" + MATCH).start()
    await kit.emit("a", {"n": 1})
    figures = kit.pipeline.stats()
    assert figures["plugins"]["s"]["received"] == 1
    assert figures["plugins"]["s"]["lanes"][0]["chunks"] == 0
    assert figures["unmatched"]["@ROOT"] == 0
    assert {"s", "output_direct.1"} < set(figures["plugins"])
    await kit.stop()


async def test_a_buffered_output_may_have_no_buffer_section():
    class Both(Script):
        name = "both"
        prefers_buffer = False

        def process(self, tag, batch):
            self.chunks.append(list(batch.events()))

    kit = await Kit("<match **>\n@type both\n</match>", plugins=[Both]).start()
    await kit.emit("t", {"n": 1})
    assert kit.of(Both).got == [{"n": 1}]
    await kit.stop()
    kit = await Kit("<match **>\n@type both\n<buffer>\nflush_interval 1\n</buffer>\n</match>", plugins=[Both]).start()
    await kit.emit("t", {"n": 1})
    assert kit.of(Both).got == []
    await kit.clock.elapse(2)
    assert kit.of(Both).got == [{"n": 1}]
    await kit.stop()


async def test_an_outputs_own_defaults_of_the_buffer():
    class Own(Script):
        name = "own"
        buffer_defaults: ClassVar = {"flush_interval": "5s", "retry_max_times": "2"}
        default_chunk_keys = ("tag",)

    kit = Kit("<match **>\n@type own\n<buffer>\nretry_max_times 7\n</buffer>\n</match>", plugins=[Own])
    section = kit.of(Own).runner.section
    assert (section.flush_interval, section.retry_max_times, section.chunk_keys) == (5.0, 7, ["tag"])
    kit = Kit("<match **>\n@type own\n<buffer []>\n</buffer>\n</match>", plugins=[Own])
    assert kit.of(Own).runner.section.chunk_keys == []


@pytest.mark.parametrize("mode", ["immediate", "lazy", "interval", "default"])
@pytest.mark.parametrize(
    "lines",
    [
        "@type exec_filter\ntag b\ncommand cat\n<format>\n@type json\n</format>\n<parse>\n@type json\n</parse>",
        "@type buffer\n@label @L",
    ],
)
def test_the_flush_interval_of_an_output_gives_way_to_flush_mode(tmp_path, mode, lines):
    keys, timekey = ("tag,time", "timekey 1h") if mode == "lazy" else ("", "")
    buffer = f"<buffer {keys}>\npath {tmp_path}/b\nflush_mode {mode}\n{timekey}\n</buffer>"
    if "exec_filter" in lines:
        buffer = buffer.replace(f"path {tmp_path}/b\n", "")
    kit = Kit(f"<match a>\n{lines}\n{buffer}\n</match>\n<label @L>\n<match **>\n@type null\n</match>\n</label>")
    assert not kit.errors, kit.errors


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("<buffer>\n</buffer>", "in a <match> section"),
        ("<storage>\n</storage>", "section of a plugin"),
        ("<match **>\n@type null\n<buffer>\nretry_limit 5\n</buffer>\n</match>", "write retry_max_times"),
        ("<match **>\n@type null\n<buffer>\nnum_threads 5\n</buffer>\n</match>", "write flush_thread_count"),
    ],
)
def test_hints_of_what_stands_elsewhere_or_had_another_name(text, hint):
    kit = Kit(text + "\n<match **>\n@type null\n</match>")
    assert [hint in error for error in kit.errors] == [True], kit.errors
