r"""What every plugin must hold to, as functions for the tests of whoever writes one.

    async def test_my_output():
        await check_output("<match **>\n@type pigeon\n</match>", plugins=[PigeonOutput])

Each raises AssertionError with what was broken. They use virtual time and need no network; a plugin that
needs a peer is given a configuration that names one of the test's own.
"""

from __future__ import annotations

import asyncio
import copy
import random
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.fluent import parse
from headrace.errors import BufferOverflow
from headrace.pipeline.plugin import Filter, Formatter, Output, Parser, Plugin, Source
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Direct, Kit, Script, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.pipeline.event import Record

TIME: Final = 1_700_000_000_123_456_789

TEXTS: Final[Sequence[bytes]] = (
    b"",
    b"\n",
    b"plain text",
    b'{"a": 1}',
    b'{"a": ',
    b"[1, 2",
    b"a:1\tb:2",
    b"1,2,3",
    b'"unclosed, quote',
    b"\xff\xfe\x00\x80",
    b"\x81\xa1a\x01",
    b"\xdf\xff\xff\xff\xff",
    "grüße ☃".encode(),
    b"x" * 100_000,
)
"""Input that a parser may meet."""

RECORDS: Final[Sequence[Record]] = (
    {},
    {"message": "plain"},
    {"a": 1, "b": -1.5, "c": True, "d": None},
    {"nested": {"list": [1, [2, {"x": "y"}]]}},
    {"unicode": "grüße ☃", "line": "one\ntwo\ttab"},
    {"bytes": b"\xff\xfe", "surrogate": "\udcff"},
    {1: "integer key", "huge": 1 << 80},
    {"nan": float("nan"), "infinity": float("inf")},
)
"""Records that every plugin may meet."""


def _plugin(text: str, kind: type[Plugin], plugins: Sequence[type[Plugin]]) -> tuple[Kit, Any]:
    kit = Kit(text, plugins=plugins)
    assert kit.errors == [], kit.errors
    assert kit.pipeline is not None
    found = [plugin for plugin in kit.pipeline.plugins if isinstance(plugin, kind)]
    assert found, f"the configuration has no {kind.__name__}"
    return kit, found[0]


def make(kind: str, text: str, *, plugins: Sequence[type[Plugin]] = ()) -> Any:
    """Return a parser or formatter of the parameters in `text`, `@type` first; its clock stands still."""
    kit = Kit("", plugins=plugins)
    assert kit.pipeline is not None
    context = kit.pipeline.context
    (directive,) = parse(f"<section>\n{text}\n</section>", "test.conf", env={}, hostname="host", worker_id="0")
    made = context.make(kind, directive)
    context.problems.raise_first()
    loop = asyncio.new_event_loop()
    loop.close()
    context.run_on(loop, kit.clock, {})
    return made


def check_parser(parser: Parser) -> None:
    """A parser says no by (None, None) and never raises; its records are new dicts, its times nanoseconds."""
    for text in TEXTS:
        for time, record in parser.parse(text):
            assert record is None or isinstance(record, dict), (text, record)
            assert time is None or (type(time) is int), (text, time)
            assert record is not None or time is None, text
    first = [record for _time, record in parser.parse(TEXTS[3])]
    for record in first:
        if record is not None:
            record["changed"] = True
    again = [record for _time, record in parser.parse(TEXTS[3])]
    assert not any(record and "changed" in record for record in again), "a record is shared between two calls"


def check_formatter(formatter: Formatter) -> None:
    """A formatter returns bytes or raises ValueError or TypeError, and leaves the record as it was."""
    for record in RECORDS:
        before = copy.deepcopy(record)
        try:
            text = formatter.format("a.tag", TIME, record)
        except (ValueError, TypeError):
            text = b""
        assert isinstance(text, bytes), record
        assert repr(record) == repr(before), "the record was changed"


async def check_filter(text: str, *, plugins: Sequence[type[Plugin]] = ()) -> None:
    """A filter leaves its argument as it was, and a record that it cannot take does not stop the others.

    text: a <filter **> section; a <match> is added.
    """
    text += "\n<match **>\n@type direct\n</match>\n<label @ERROR>\n<match **>\n@type direct\n</match>\n</label>"
    kit, _found = _plugin(text, Filter, plugins)
    await kit.start()
    for record in RECORDS:
        before = repr(record)
        await kit.emit("a.tag", record)
        assert repr(record) == before, "the record was changed"
    await kit.emit("a.tag", *RECORDS)
    await kit.stop()


async def check_output(text: str, *, plugins: Sequence[type[Plugin]] = (), records: Sequence[Record] = RECORDS) -> None:
    """An output starts and stops without events, stops with events in it, and leaves nothing running."""
    for some in ((), records):
        before = asyncio.all_tasks()
        kit, output = _plugin(text, Output, plugins)
        await kit.start()
        for record in some:
            try:
                outcome = kit.offer("a.tag", record)
                if outcome is not None:
                    await asyncio.wait_for(outcome, 5)
            except BufferOverflow:
                continue
        await kit.stop(2.0)
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert not left, f"tasks are left: {left}"
        if output.runner is not None and output.runner.output is output:
            assert output.runner.stats() and kit.balanced()  # noqa: PT018 - two sides of one statement


async def check_source(text: str, *, plugins: Sequence[type[Plugin]] = ()) -> None:
    """A source (without sockets of the process) starts, is quiet after quiesce, and leaves nothing running."""
    before = asyncio.all_tasks()
    kit, source = _plugin(text + "\n<match **>\n@type direct\n</match>", Source, plugins)
    await kit.start()
    await kit.clock.elapse(3)
    await source.quiesce()
    direct = kit.of(Direct)
    count = len(direct.events)
    await kit.clock.elapse(3)
    assert len(direct.events) == count, "events came after quiesce"
    await kit.stop()
    left = [task for task in asyncio.all_tasks() - before if not task.done()]
    assert not left, f"tasks are left: {left}"


async def check_buffer(parameters: str = "", *, plugins: Sequence[type[Plugin]] = ()) -> None:
    """A buffer keeps order, refuses a batch whole when it is full, and gives a chunk back after a failure.

    parameters: of the <buffer> section, `@type` included. A persistent one also restores what was left.
    """
    text = f"""
<match **>
  @type script
  @id contract
  <buffer>
    total_limit_size 8k
    chunk_limit_size 2k
    retry_randomize false
    flush_interval 1s
    {parameters}
  </buffer>
</match>
"""
    disk = Disk()
    noise = random.Random(1)  # noqa: S311 - what no compression makes small
    kit = await Kit(text, plugins=plugins, files=disk).start()
    kit.script.then = TransientError("down")
    taken: list[int] = []
    refused = 0
    for number in range(0, 200, 2):
        try:
            await kit.emit("t", {"n": number, "x": noise.randbytes(150)}, {"n": number + 1})
        except BufferOverflow:
            refused += 1
        else:
            taken += [number, number + 1]
        assert kit.balanced(), "events are not accounted for"
    assert refused, "the buffer has no limit"
    await kit.clock.elapse(3)
    persistent = kit.pipeline is not None and kit.pipeline.runners[0].section.persistent
    if persistent:
        kit.script.then = None
        again = await Kit(text, plugins=plugins, files=disk.copy()).start()
        await again.clock.elapse(3)
        await again.work()
        _check_order(again.script, taken)
        await again.stop()
    kit.script.then = None
    await kit.clock.elapse(10)
    await kit.work()
    _check_order(kit.script, taken)
    await kit.stop()
    assert disk.open == {}, "files are left open"


def _check_order(output: Script, taken: list[int]) -> None:
    got = [record["n"] for record in output.got]
    assert sorted(got) == taken, "events were lost or repeated"
    for chunk in output.chunks:
        numbers = [record["n"] for _time, record in chunk]
        assert numbers == sorted(numbers), "events of a chunk are out of order"
