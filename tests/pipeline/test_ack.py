"""What an answer to a client waits for: the write, the disk, or the delivery."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.pipeline.plugin import Source
from headrace.testing.disks import Disk
from headrace.testing.pipelines import Kit, Script, TransientError, settle


class Tap(Source):
    """Emits what a test gives it."""

    name = "tap"

    def give(self, *records, batch_id=None):
        batch = Batch.of([(self.context.clock.wall_ns(), record) for record in records])
        batch.id = batch_id
        return self.router.emit("t", batch)


class Second(Script):
    name = "second"


def conf(mode: str, buffer: str = "", *, deadline: str = "30s", match: str = "") -> str:
    match = match or f"@type script\n@id out\n<buffer>\nflush_interval 60s\nretry_randomize false\n{buffer}\n</buffer>"
    return f"""
<source>
  @type tap
  ack_mode {mode}
  ack_deadline {deadline}
</source>
<match **>
  {match}
</match>
"""


async def started(text: str, **options) -> tuple[Kit, Tap]:
    kit = await Kit(text, plugins=[Tap, Second], **options).start()
    return kit, kit.of(Tap)


def pending(answer) -> asyncio.Future:
    return asyncio.ensure_future(answer)


async def test_all_that_wait_for_the_disk_share_one_sync():
    disk = Disk()
    kit, tap = await started(conf("fsync", "@type file\npath /b"), files=disk)
    answers = [pending(tap.give({"n": number})) for number in range(50)]
    await asyncio.gather(*answers)
    assert 1 <= disk.log.count(("sync", disk.segments()[0])) <= 2
    await kit.stop()


async def test_a_source_may_ask_for_less_than_the_buffer_gives():
    disk = Disk()
    kit, tap = await started(conf("write", "@type file\npath /b\nsync fsync"), files=disk)
    assert tap.give({"n": 1}) is None
    assert ("sync", disk.segments()[0]) not in disk.log
    await kit.clock.elapse(0.5)
    for _ in range(100):
        if ("sync", disk.segments()[0]) in disk.log:
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("the disk never got it")
    await kit.stop()


async def test_a_slow_disk_does_not_add_its_own_wait_to_the_interval():
    disk = Disk()
    kit, tap = await started(conf("buffer", "@type file\npath /b"), files=disk)
    release = threading.Event()
    syncs = []

    def before(operation, path):
        if operation == "sync":
            syncs.append(len(disk.files[path].data))
            release.wait(10)

    disk.before = before
    tap.give({"n": 1})
    await kit.clock.elapse(0.41)
    tap.give({"n": 2})
    size = len(disk.files[disk.segments()[0]].data)
    await kit.clock.elapse(0.41)  # its time is over, but the disk is still busy with the first
    assert len(syncs) == 1
    release.set()
    for _ in range(200):
        if len(syncs) > 1:
            break
        await asyncio.sleep(0.01)
    assert syncs[1:] == [size]  # at once, without another interval
    await kit.stop()


async def test_by_default_the_buffer_decides():
    kit, tap = await started(conf("buffer"))
    assert tap.give({"n": 1}) is None
    await kit.stop()


async def test_delivery_does_not_wait_for_the_flush_interval():
    kit, tap = await started(conf("delivery"))
    answer = pending(tap.give({"n": 1}))
    await kit.work()
    assert answer.done()
    assert kit.script.got == [{"n": 1}]
    assert kit.balanced()
    await kit.stop()


async def test_batches_that_come_while_a_lane_works_share_the_next_chunk():
    kit, tap = await started(conf("delivery"))
    first = asyncio.get_running_loop().create_future()
    kit.script.answers = [first]
    answers = [pending(tap.give({"n": 0}))]
    await settle()
    answers += [pending(tap.give({"n": number})) for number in range(1, 100)]
    await settle()
    assert not any(answer.done() for answer in answers)
    first.set_result(None)
    await kit.work()
    assert all(answer.done() for answer in answers)
    assert len(kit.script.chunks) <= 4
    assert [record["n"] for record in kit.script.got] == list(range(100))
    await kit.stop()


async def test_who_waits_too_long_is_told_to_come_back_and_nothing_is_lost():
    kit, tap = await started(conf("delivery", deadline="5s"))
    kit.script.then = TransientError("down")
    answer = pending(tap.give({"n": 1}))
    await kit.clock.elapse(4.9)
    assert not answer.done()
    await kit.clock.elapse(0.2)
    with pytest.raises(BufferOverflow) as caught:
        await answer
    assert caught.value.kind == "deadline"
    kit.script.then = None
    await kit.clock.elapse(60)
    assert kit.script.got == [{"n": 1}]
    assert kit.pipeline.stats()["plugins"][tap.plugin_id]["acks_late"] == 1
    assert kit.balanced()
    await kit.stop()


async def test_a_chunk_that_is_given_up_is_not_acknowledged(tmp_path):
    kit, tap = await started(conf("delivery", "retry_max_times 0\ndisable_chunk_backup true"))
    kit.script.then = TransientError("down")
    answer = pending(tap.give({"n": 1}))
    await kit.work()
    with pytest.raises(BufferOverflow) as caught:
        await answer
    assert caught.value.kind == "undelivered"
    assert kit.balanced()
    await kit.stop()


async def test_the_secondary_counts_as_delivery():
    secondary = "<secondary>\n@type second\n</secondary>"
    match = f"@type script\n<buffer>\nretry_max_times 0\n</buffer>\n{secondary}"
    kit, tap = await started(conf("delivery", match=match))
    kit.script.then = TransientError("down")
    await tap.give({"n": 1})
    assert kit.of(Second).got == [{"n": 1}]
    await kit.stop()


async def test_a_dropped_chunk_is_not_acknowledged():
    kit, tap = await started(conf("delivery", "total_limit_size 100\noverflow_action drop_oldest_chunk"))
    kit.script.then = TransientError("down")
    first = pending(tap.give({"n": "x" * 60}))
    await kit.work()
    pending(tap.give({"n": "y" * 60}))
    with pytest.raises(BufferOverflow):
        await first
    await kit.stop()


async def test_the_end_of_the_process_is_an_answer_too():
    kit, tap = await started(conf("delivery"))
    kit.script.then = TransientError("down")
    answer = pending(tap.give({"n": 1}))
    await kit.work()
    await kit.stop()
    with pytest.raises(BufferOverflow) as caught:
        await answer
    assert caught.value.kind == "shutdown"


async def test_a_repeated_batch_waits_for_the_delivery_of_the_first():
    kit, tap = await started(conf("delivery"))
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate]
    first = pending(tap.give({"n": 1}, batch_id=b"one"))
    await settle()
    second = pending(tap.give({"n": 1}, batch_id=b"one"))
    await settle()
    assert not second.done()
    gate.set_result(None)
    await asyncio.gather(first, second)
    assert kit.script.got == [{"n": 1}]
    assert tap.give({"n": 1}, batch_id=b"one") is None
    await kit.stop()


async def test_a_batch_that_was_given_up_may_come_again():
    kit, tap = await started(conf("delivery", "retry_max_times 0\ndisable_chunk_backup true"))
    kit.script.answers = [TransientError("down")]
    with pytest.raises(BufferOverflow):
        await tap.give({"n": 1}, batch_id=b"one")
    answer = pending(tap.give({"n": 1}, batch_id=b"one"))
    await kit.clock.elapse(2)
    await answer
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


async def test_after_a_restart_a_repeated_batch_waits_for_what_was_left():
    disk = Disk()
    text = conf("delivery", "@type file\npath /b")
    kit, tap = await started(text, files=disk)
    kit.script.then = TransientError("down")
    pending(tap.give({"n": 1}, batch_id=b"one"))
    await kit.work()
    kit, tap = await started(text, files=disk.copy())
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate]
    await settle()
    answer = pending(tap.give({"n": 1}, batch_id=b"one"))
    await settle()
    assert not answer.done()
    gate.set_result(None)
    await answer
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


COPY = """@type copy
<store>
  @type script
  <buffer>
  </buffer>
</store>
<store {}>
  @type second
  <buffer>
    retry_max_times 0
    disable_chunk_backup true
  </buffer>
</store>"""


async def test_every_required_store_must_have_delivered():
    kit, tap = await started(conf("delivery", match=COPY.format("")))
    gate = asyncio.get_running_loop().create_future()
    kit.of(Second).answers = [gate]
    answer = pending(tap.give({"n": 1}))
    await kit.work()
    assert kit.script.got == [{"n": 1}]
    assert not answer.done()
    gate.set_result(None)
    await answer
    await kit.stop()


async def test_a_store_whose_errors_are_ignored_is_not_waited_for():
    kit, tap = await started(conf("delivery", match=COPY.format("ignore_error")))
    kit.of(Second).then = TransientError("down")
    await tap.give({"n": 1})
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


async def test_with_delivery_a_fallback_gets_what_the_store_before_gave_up():
    match = """@type copy
<store ignore_error>
  @type second
  <buffer>
    retry_max_times 0
    disable_chunk_backup true
  </buffer>
</store>
<store ignore_if_prev_success>
  @type script
</store>"""
    kit, tap = await started(conf("delivery", match=match))
    kit.of(Second).then = TransientError("down")
    await tap.give({"n": 1})
    assert kit.script.got == [{"n": 1}]
    kit.of(Second).then = None
    answer = pending(tap.give({"n": 2}))
    await kit.clock.elapse(2)
    await answer
    assert kit.of(Second).got == [{"n": 2}]
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


async def test_filters_keep_the_mode():
    text = conf("delivery").replace("<match", "<filter **>\n@type drop_odd\n</filter>\n<match", 1)
    kit, tap = await started(text)
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate]
    answer = pending(tap.give({"n": 1}, {"n": 2}))
    await settle()
    assert not answer.done()
    gate.set_result(None)
    await answer
    assert kit.script.got == [{"n": 2}]
    await kit.stop()


def test_a_deadline_that_nobody_can_meet_is_refused():
    assert "ack_deadline" in Kit(conf("delivery", deadline="0s"), plugins=[Tap]).errors[0]
    assert "ack_mode" in Kit(conf("sometime"), plugins=[Tap]).errors[0]
