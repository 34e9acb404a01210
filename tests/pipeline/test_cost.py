"""What a step costs does not grow with how many chunks wait: lines of code run, not seconds."""

from __future__ import annotations

import sys

import pytest

from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, TransientError, settle

FEW, MANY = 20, 4000


class Lines:
    """Counts the lines of headrace's pipeline that run inside of it."""

    def __enter__(self) -> Lines:
        self.count = 0
        sys.settrace(self._call)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.settrace(None)

    def _call(self, frame, _event, _arg):
        return self._line if "/headrace/pipeline/" in frame.f_code.co_filename else None

    def _line(self, _frame, event, _arg):
        self.count += event == "line"
        return self._line


def conf(argument: str = "", buffer: str = "", extra: str = "") -> str:
    return f"""
<match **>
  @type script
  @id out
  <buffer {argument}>
    flush_interval 5s
    retry_randomize false
    {buffer}
  </buffer>
  {extra}
</match>
"""


async def queued(count: int, buffer: str = "", extra: str = "") -> Kit:
    kit = await Kit(conf(buffer=f"chunk_limit_records 1\n{buffer}", extra=extra)).start()
    kit.script.then = TransientError("down")
    for number in range(count):
        kit.offer("t", {"n": number})
    await settle(50)
    return kit


async def stopped(kit: Kit) -> None:
    kit.script.then = None
    await kit.stop()


async def take_and_put_back(count: int) -> int:
    kit = await queued(count)
    buffer = kit.pipeline.runners[0].buffer
    now = kit.clock.now()
    with Lines() as lines:
        for _ in range(10):
            chunk = buffer.take(now)
            chunk.attempts += 1
            chunk.due = now + 1
            buffer.back(chunk)
    await stopped(kit)
    return lines.count


async def one_window(count: int) -> int:
    """A probe of a dead destination, while chunks wait."""
    kit = await queued(count)
    await kit.clock.elapse(1.5)
    with Lines() as lines:
        await kit.clock.elapse(2)
    await stopped(kit)
    return lines.count


async def one_more(count: int) -> int:
    kit = await queued(count)
    with Lines() as lines:
        for number in range(10):
            kit.offer("t", {"n": number})
        await settle(20)
    await stopped(kit)
    return lines.count


async def drop_the_oldest(count: int) -> int:
    kit = await queued(count, f"overflow_action drop_oldest_chunk\ntotal_limit_size {count * 16}")
    kit.offer("t", {"n": 0})
    with Lines() as lines:
        for number in range(10):
            kit.offer("t", {"n": number})
    assert kit.stats()["dropped"]["oldest_dropped"] > 0
    assert kit.balanced()
    await stopped(kit)
    return lines.count


async def tags(count: int) -> int:
    """Flush timers of many tags, each at its own moment."""
    kit = await Kit(conf("tag", "flush_thread_count 4\nqueued_chunks_limit_size 100000")).start()
    for number in range(count):
        kit.offer(f"t{number}", {"n": number})
        if number % 10 == 0:
            await kit.clock.elapse(0.001)
    with Lines() as lines:
        for number in range(10):
            kit.offer(f"u{number}", {"n": number})
            await kit.clock.elapse(0.001)
    await kit.stop()
    return lines.count


async def flush_of_one_tag(count: int) -> int:
    """One tag is due while the others are not."""
    kit = await Kit(conf("tag")).start()
    kit.offer("first", {"n": 0})
    await kit.clock.elapse(4)
    for number in range(count):
        kit.offer(f"t{number}", {"n": number})
    with Lines() as lines:
        await kit.clock.elapse(1.5)
    assert kit.script.got == [{"n": 0}]
    await kit.stop()
    return lines.count


async def given_up(count: int) -> int:
    """Chunks that cannot even be backed up wait; a look at them is one try a second."""
    kit = await queued(count, "retry_max_times 0\nflush_thread_count 2")
    kit.pipeline.runners[0].backup().space.make_room = _full
    await settle(50 * count // 10)
    await kit.clock.elapse(1.5)
    with Lines() as lines:
        await kit.clock.elapse(1)
    kit.pipeline.context.dead_letters.__dict__.pop("make_room")
    await stopped(kit)
    return lines.count


async def on_disk(count: int) -> int:
    """Chunks of a file buffer come and are delivered while others wait, over many segments."""
    text = conf(buffer="@type file\npath /b\nchunk_limit_records 1\nsegment_size 16k\nflush_thread_count 1")
    kit = await Kit(text, files=Disk()).start()
    kit.script.then = TransientError("down")
    for number in range(count):
        kit.offer("t", {"n": number})
    await settle(50)
    buffer = kit.pipeline.runners[0].buffer
    with Lines() as lines:
        for number in range(10):
            kit.offer("t", {"n": number})
            chunk = buffer.take(kit.clock.now())
            chunk.read()
            buffer.remove(chunk)
    await kit.stop(0.1)
    return lines.count


def _full(_size: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "job", [take_and_put_back, one_window, one_more, drop_the_oldest, tags, flush_of_one_tag, given_up, on_disk]
)
async def test_the_cost_does_not_grow(job):
    few, many = await job(FEW), await job(MANY)
    assert many < 2 * few + 200
