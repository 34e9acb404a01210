"""Retry, give-up, secondary and backup of buffered outputs, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import Unrecoverable
from headrace.pipeline.context import Settings
from headrace.testing.pipelines import Kit, Script, TransientError, settle


class Second(Script):
    name = "second"


def conf(buffer: str = "", extra: str = "", argument: str = "") -> str:
    return f"""
<match **>
  @type script
  @id out
  <buffer {argument}>
    flush_interval 1s
    retry_randomize false
    {buffer}
  </buffer>
  {extra}
</match>
"""


SECOND = "<secondary>\n@type second\n</secondary>"


async def many(kit: Kit, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await kit.emit("t", {"n": number})


async def test_events_are_delivered_after_the_interval():
    kit = await Kit(conf()).start()
    await many(kit, 3)
    await kit.clock.elapse(0.9)
    assert kit.script.got == []
    await kit.clock.elapse(0.2)
    assert kit.script.got == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert len(kit.script.chunks) == 1
    assert kit.balanced()
    await kit.stop()
    assert kit.script.stopped == 1


@pytest.mark.parametrize(("limit", "attempts"), [(0, 1), (1, 2), (3, 4)])
@pytest.mark.parametrize(("lanes", "chunks"), [(1, 1), (8, 8)])
async def test_retry_max_times_is_counted_by_each_chunk(limit, attempts, lanes, chunks):
    text = conf(f"retry_max_times {limit}\nflush_thread_count {lanes}\nchunk_limit_records 1", SECOND)
    kit = await Kit(text, plugins=[Second]).start()
    kit.script.then = TransientError("503")
    await many(kit, chunks)
    await kit.clock.elapse(60)
    tries = [chunk for _when, chunk in kit.script.tries]
    assert {tries.count(chunk) for chunk in tries} == {attempts}
    assert len(set(tries)) == chunks
    second = kit.of(Second)
    assert sorted(record["n"] for record in second.got) == list(range(chunks))
    assert kit.balanced()
    await kit.stop()


@pytest.mark.parametrize("lanes", [1, 3, 8])
async def test_lanes_that_fail_together_count_as_one_window(lanes):
    """F15: as many windows with 8 flush threads as with one; then the secondary has every record, none is dropped."""
    text = conf(f"retry_max_times 3\nflush_thread_count {lanes}\nchunk_limit_records 1", SECOND)
    kit = await Kit(text, plugins=[Second]).start()
    kit.script.then = TransientError("down")
    start = kit.clock.now()
    await many(kit, 8)
    await kit.clock.elapse(5.5)
    assert kit.of(Second).got == []
    await kit.clock.elapse(0.2)
    assert sorted({round(when - start) for when, _chunk in kit.script.tries}) == [0, 1, 3, 6]
    if lanes == 8:
        assert sorted(record["n"] for record in kit.of(Second).got) == list(range(8))
    await kit.clock.elapse(120)
    await settle(1000)
    assert sorted(record["n"] for record in kit.of(Second).got) == list(range(8))
    assert kit.script.got == []
    assert not any(kit.stats()["dropped"].values())
    assert kit.balanced()
    await kit.stop()


async def test_a_dead_destination_is_not_asked_once_for_each_chunk():
    text = conf("retry_max_times 3\nflush_thread_count 2\nchunk_limit_records 1", SECOND)
    kit = await Kit(text, plugins=[Second]).start()
    kit.script.then = TransientError("down")
    await many(kit, 200)
    await kit.clock.elapse(60)
    await settle(3000)
    await kit.clock.elapse(120)
    assert len(kit.script.tries) < 30
    assert len(kit.of(Second).got) == 200
    assert kit.balanced()
    await kit.stop()


@pytest.mark.parametrize("lanes", [1, 4])
async def test_one_poisoned_chunk_goes_alone(lanes, tmp_path):
    text = conf(f"retry_max_times 3\nchunk_limit_records 1\nflush_thread_count {lanes}", argument="tag")
    kit = await Kit(text, settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.refuse = lambda chunk: TransientError("bad") if chunk.tag == "bad" else None
    await kit.emit("bad", {"n": -1})
    await many(kit, 9)
    await kit.clock.elapse(1.5)
    assert sorted(record["n"] for record in kit.script.got) == list(range(9))
    await kit.clock.elapse(30)
    backup = list((tmp_path / "backup" / "worker0" / "out").iterdir())
    assert len(backup) == 1
    assert kit.stats()["dropped"]["backed_up"] == 1
    assert kit.balanced()
    await many(kit, 1, 100)
    await kit.clock.elapse(1)
    assert kit.script.got[-1] == {"n": 100}
    await kit.stop()


async def test_successes_between_do_not_keep_a_poisoned_chunk_alive(tmp_path):
    text = conf("retry_max_times 3\nchunk_limit_records 1", argument="tag")
    kit = await Kit(text, settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.refuse = lambda chunk: TransientError("bad") if chunk.tag == "bad" else None
    await kit.emit("bad", {"n": -1})
    for number in range(100):
        await kit.emit("t", {"n": number})
        await kit.clock.elapse(0.5)
    assert len(kit.script.got) == 100
    bad = [when for when, _chunk in kit.script.tries]
    assert len(bad) == 104
    assert kit.stats()["dropped"]["backed_up"] == 1
    await kit.stop()


async def test_an_unrecoverable_error_goes_to_the_secondary_at_once():
    kit = await Kit(conf(extra=SECOND), plugins=[Second]).start()
    kit.script.answers = [Unrecoverable("400")]
    await many(kit, 1)
    await kit.clock.elapse(1.1)
    assert kit.of(Second).got == [{"n": 0}]
    assert len(kit.script.tries) == 1
    assert kit.stats()["retry_step"] == 0
    await kit.stop()


async def test_an_unrecoverable_error_without_secondary_is_backed_up(tmp_path):
    kit = await Kit(conf(), settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.answers = [ValueError("bad chunk")]
    await many(kit, 2)
    await kit.clock.elapse(1.1)
    (path,) = (tmp_path / "backup" / "worker0" / "out").iterdir()
    assert path.name == kit.script.tries[0][1].hex() + ".log"
    assert b"n" in path.read_bytes()
    assert kit.stats()["dropped"]["backed_up"] == 2
    await kit.stop()


async def test_disable_chunk_backup_throws_away(tmp_path):
    kit = await Kit(conf("disable_chunk_backup true"), settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.answers = [Unrecoverable("400")]
    await many(kit, 2)
    await kit.clock.elapse(1.1)
    assert list(tmp_path.iterdir()) == []
    assert kit.stats()["dropped"]["thrown_away"] == 2
    await kit.stop()


async def test_retry_forever_never_gives_up():
    kit = await Kit(conf("retry_forever true\nretry_max_interval 10s\nretry_timeout 20s")).start()
    kit.script.then = TransientError("down")
    await many(kit, 1)
    await kit.clock.elapse(1000)
    assert len(kit.script.tries) > 90
    kit.script.then = None
    await kit.clock.elapse(11)
    assert kit.script.got == [{"n": 0}]
    await kit.stop()


@pytest.mark.parametrize(
    "lines",
    [
        "retry_forever true\nretry_wait 0",
        "retry_forever true\nretry_max_interval 0",
        "retry_forever true\nretry_wait 0\nretry_type periodic",
        "retry_wait 0",
    ],
)
async def test_without_waits_a_destination_is_not_tried_as_fast_as_the_processor_can(lines):
    kit = await Kit(conf(lines)).start()
    kit.script.then = TransientError("down")
    await many(kit, 1)
    await kit.clock.elapse(11)
    assert 150 <= len(kit.script.tries) <= 201
    kit.script.then = None
    await kit.clock.elapse(1)
    assert kit.script.got == [{"n": 0}]
    await kit.stop()


async def test_retry_timeout_makes_the_last_try_at_the_limit(tmp_path):
    kit = await Kit(conf("retry_timeout 10s"), settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.then = TransientError("down")
    start = kit.clock.now()
    await many(kit, 1)
    await kit.clock.elapse(30)
    assert [round(when - start) for when, _chunk in kit.script.tries] == [1, 2, 4, 8, 11]
    assert kit.stats()["dropped"]["backed_up"] == 1
    await kit.stop()


async def test_the_secondary_comes_at_its_threshold_of_the_timeout():
    kit = await Kit(conf("retry_timeout 10s\nretry_secondary_threshold 0.5", SECOND), plugins=[Second]).start()
    kit.script.then = TransientError("down")
    start = kit.clock.now()
    await many(kit, 1)
    await kit.clock.elapse(5.9)
    assert kit.of(Second).got == []
    await kit.clock.elapse(0.2)
    assert [round(when - start) for when, _chunk in kit.script.tries] == [1, 2, 4, 6]
    assert kit.of(Second).got == [{"n": 0}]
    await kit.stop()


async def test_a_failing_secondary_ends_in_the_backup(tmp_path):
    text = conf("retry_max_times 1", SECOND)
    kit = await Kit(text, plugins=[Second], settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.then = TransientError("down")
    kit.of(Second).then = TransientError("down too")
    await many(kit, 1)
    await kit.clock.elapse(20)
    assert len(kit.of(Second).tries) == 2
    assert kit.stats()["dropped"]["backed_up"] == 1
    assert kit.balanced()
    await kit.stop()


async def test_periodic_retries():
    kit = await Kit(conf("retry_type periodic\nretry_wait 3s")).start()
    kit.script.answers = [TransientError("down")] * 3
    start = kit.clock.now()
    await many(kit, 1)
    await kit.clock.elapse(20)
    assert [round(when - start) for when, _chunk in kit.script.tries] == [1, 4, 7, 10]
    assert kit.script.got == [{"n": 0}]
    await kit.stop()


class Terrible(BaseException):
    """Not an Exception."""


async def test_a_lane_outlives_a_base_exception(caplog):
    kit = await Kit(conf()).start()
    kit.script.answers = [Terrible()]
    await many(kit, 1)
    await kit.clock.elapse(1.1)
    assert kit.script.got == []
    assert "flush lane 0 died" in caplog.text
    assert kit.stats()["oldest_chunk_age"] > 1
    await kit.clock.elapse(1.1)
    assert kit.script.got == [{"n": 0}]
    assert kit.stats()["lanes"][0]["restarts"] == 1
    assert kit.stats()["oldest_chunk_age"] == 0
    await kit.stop()


async def test_a_cancellation_from_inside_the_output_is_a_failure():
    kit = await Kit(conf()).start()
    kit.script.answers = [asyncio.CancelledError()]
    await many(kit, 1)
    await kit.clock.elapse(3)
    assert kit.script.got == [{"n": 0}]
    assert len(kit.script.tries) == 2
    await kit.stop()


async def test_lanes_work_at_the_same_time_and_do_not_sleep_on_a_backlog():
    kit = await Kit(conf("flush_thread_count 4\nchunk_limit_records 1")).start()
    gates = [asyncio.get_running_loop().create_future() for _ in range(4)]
    kit.script.answers = list(gates)
    await many(kit, 40)
    await settle()
    assert len(kit.script.tries) == 4
    for gate in gates:
        gate.set_result(None)
    for _ in range(10):
        await settle()
    assert len(kit.script.got) == 40
    assert kit.clock.now() == 1000.0
    await kit.stop()


async def test_flush_thread_burst_interval_is_kept_when_it_is_set():
    kit = await Kit(conf("flush_thread_burst_interval 2\nchunk_limit_records 1")).start()
    await many(kit, 3)
    await kit.clock.elapse(0.1)
    assert len(kit.script.got) == 1
    await kit.clock.elapse(4)
    assert len(kit.script.got) == 3
    await kit.stop()


class Delayed(Script):
    name = "delayed"

    async def try_write(self, chunk, lane):
        self.tries.append((self.context.clock.now(), chunk.id))


async def test_delayed_commit():
    text = conf("delayed_commit_timeout 5s").replace("@type script", "@type delayed")
    kit = await Kit(text, plugins=[Delayed]).start()
    output = kit.of(Delayed)
    await many(kit, 1)
    await kit.clock.elapse(1.1)
    assert kit.stats()["buffer_in_flight"] == 1
    await kit.clock.elapse(5)
    assert kit.stats()["retry_count"] == 1
    await kit.clock.elapse(1)
    assert len(output.tries) == 2
    output.rollback(output.tries[1][1])
    await kit.clock.elapse(2.1)
    assert len(output.tries) == 3
    output.commit(output.tries[2][1])
    output.commit(output.tries[2][1])
    assert kit.stats()["delivered"] == 1
    assert kit.balanced()
    await kit.stop()


async def test_stop_flushes_memory_and_ends_at_the_deadline(caplog):
    kit = await Kit(conf("flush_interval 60s")).start()
    await many(kit, 3)
    await kit.stop()
    assert len(kit.script.got) == 3
    kit = await Kit(conf("flush_interval 60s")).start()
    kit.script.answers = [asyncio.get_running_loop().create_future()]
    await many(kit, 3)
    start = kit.clock.now()
    await kit.stop(within=5)
    assert kit.clock.now() - start < 7
    assert "3 events in memory are lost" in caplog.text
    assert kit.stats()["dropped"]["lost_at_shutdown"] == 3
    assert kit.balanced()


async def test_stop_tries_once_more_what_waits_for_a_retry():
    kit = await Kit(conf("chunk_limit_records 1")).start()
    kit.script.then = TransientError("down")
    await many(kit, 5)
    await kit.clock.elapse(3)
    assert kit.stats()["buffered"] == 5
    kit.script.then = None  # it is back, but the next retry would come after the end
    await kit.stop()
    assert kit.stats()["delivered"] == 5
    assert kit.stats()["dropped"]["lost_at_shutdown"] == 0
    assert kit.balanced()


async def test_stop_does_not_wait_for_a_destination_that_is_down():
    kit = await Kit(conf("flush_interval 60s")).start()
    kit.script.then = TransientError("down")
    await many(kit, 3)
    start = kit.clock.now()
    await kit.stop(within=60)
    assert kit.clock.now() - start < 5


async def test_backup_that_cannot_be_written_keeps_the_chunk(tmp_path):
    (tmp_path / "backup").write_text("a file in the way")
    kit = await Kit(conf(), settings=Settings(root_dir=str(tmp_path))).start()
    kit.script.answers = [Unrecoverable("400")]
    await many(kit, 1)
    await kit.clock.elapse(3)
    assert kit.stats()["buffered"] == 1
    (tmp_path / "backup").unlink()
    await kit.clock.elapse(3)
    assert kit.stats()["dropped"]["backed_up"] == 1
    assert kit.balanced()
    await kit.stop()


async def test_the_threshold_of_the_secondary_is_part_of_the_time_of_all_retries():
    kit = await Kit(conf("retry_max_times 10\nretry_type periodic\nretry_wait 10s\n", SECOND), plugins=[Second]).start()
    kit.script.then = TransientError("503")
    await many(kit, 1)
    await kit.clock.elapse(79)
    assert kit.of(Second).got == []
    await kit.clock.elapse(3)  # 80% of 100 s
    assert kit.of(Second).got == [{"n": 0}]
    await kit.stop()
