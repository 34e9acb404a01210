"""Events into the buffer: splitting, room, overflow, rejected records, accounting."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BufferOverflow
from headrace.pipeline.event import Batch
from headrace.testing.pipelines import Direct, Kit, Script, TransientError, settle


def conf(buffer: str = "", extra: str = "", argument: str = "", kind: str = "script") -> str:
    return f"""
<match **>
  @type {kind}
  @id out
  <buffer {argument}>
    retry_randomize false
    {buffer}
  </buffer>
</match>
{extra}
"""


ERROR = "<label @ERROR>\n<match **>\n@type direct\n</match>\n</label>"
ERROR_WITH_LIMIT = (
    "<label @ERROR>\n<match **>\n@type script\n<buffer>\nchunk_limit_size 1k\n</buffer>\n</match>\n</label>"
)


def batch_of_ten() -> list[dict]:
    return [{"n": n, "x": "y" * (4096 if n == 4 else 20)} for n in range(10)]


async def test_only_the_oversize_record_is_rejected(caplog):
    kit = await Kit(conf("chunk_limit_size 1k\nflush_interval 1s", ERROR)).start()
    await kit.emit("t", *batch_of_ten())
    assert [record["n"] for _tag, _time, record in kit.of(Direct).events] == [4]
    assert any("4116 bytes" in line and "chunk_limit_size" in line for line in caplog.messages)
    await kit.clock.elapse(2)
    assert sorted(record["n"] for record in kit.script.got) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert kit.stats()["dropped"]["rejected"] == 1
    assert kit.balanced()
    await kit.stop()


async def test_an_oversize_record_inside_error_is_final(caplog):
    kit = await Kit(conf("chunk_limit_size 1k\nflush_interval 1s", ERROR_WITH_LIMIT)).start()
    await kit.emit("t", *batch_of_ten())
    stats = kit.pipeline.stats()
    assert stats["error_events"] == 2
    assert stats["error_events_lost"] == 1
    assert sum("final" in line for line in caplog.messages) == 1
    await kit.stop()


async def test_a_refused_batch_leaves_nothing():
    kit = await Kit(conf("total_limit_size 2k\nchunk_limit_size 1k\nflush_interval 1h", ERROR)).start()
    kit.script.then = TransientError("down")
    await kit.emit("t", *({"n": n, "x": "y" * 100} for n in range(10)))
    used = kit.stats()["buffer_total_queued_size"]
    records = [{"n": n, "x": "z" * (100 if n else 2000)} for n in range(12)]
    with pytest.raises(BufferOverflow):
        await kit.emit("t", *records)
    assert kit.stats()["buffer_total_queued_size"] == used
    assert kit.stats()["received"] == 10
    assert kit.of(Direct).events == []  # nothing is said about a batch that will come again
    assert kit.balanced()
    await kit.stop()


async def test_a_batch_larger_than_the_buffer_says_that_it_never_fits():
    kit = await Kit(conf("total_limit_size 2k\nflush_interval 1h")).start()
    with pytest.raises(BufferOverflow) as caught:
        await kit.emit("t", *({"x": "y" * 100} for _ in range(100)))
    assert not caught.value.retryable
    await kit.stop()


async def test_the_input_works_again_when_the_destination_is_back():
    kit = await Kit(conf("total_limit_size 2k\nflush_interval 1s")).start()
    kit.script.then = TransientError("down")
    refused = 0
    for n in range(40):
        try:
            await kit.emit("t", {"n": n, "x": "y" * 100})
        except BufferOverflow:
            refused += 1
    assert refused
    await kit.clock.elapse(1.5)
    kit.script.then = None
    await kit.clock.elapse(2.5)
    await kit.emit("t", {"n": 99})
    assert kit.balanced()
    await kit.stop()


async def test_block_lets_producers_in_as_room_comes(caplog):
    kit = await Kit(
        conf("total_limit_size 64k\noverflow_action block\nflush_interval 1s\nflush_thread_count 2")
    ).start()
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate, gate]
    order: list[int] = []

    async def produce(number: int) -> None:
        await kit.emit("t", {"n": number, "x": "y" * 1000})
        order.append(number)

    tasks = [asyncio.ensure_future(produce(number)) for number in range(1024)]
    await kit.clock.elapse(5)
    assert len(order) < 100
    gate.set_result(None)
    for _ in range(100):
        await kit.clock.elapse(1)
        if len(order) == 1024:
            break
    await asyncio.gather(*tasks)
    await kit.clock.elapse(2)
    assert order == list(range(1024))
    assert len(kit.script.got) == 1024
    assert sum(record.name.startswith("headrace") for record in caplog.records) < 10
    assert kit.stats()["overflows"] >= 1
    assert kit.balanced()
    await kit.stop()


async def test_block_takes_a_batch_larger_than_the_buffer():
    kit = await Kit(conf("total_limit_size 16k\noverflow_action block\nflush_interval 1s")).start()
    wait = kit.offer("t", *({"n": n, "x": "y" * 1000} for n in range(100)))
    task = asyncio.ensure_future(wait)
    for _ in range(60):
        await kit.clock.elapse(1)
    assert task.done()
    await kit.clock.elapse(2)
    assert [record["n"] for record in kit.script.got] == list(range(100))
    assert kit.balanced()
    await kit.stop()


async def test_block_ends_at_shutdown():
    kit = await Kit(conf("total_limit_size 1k\noverflow_action block\nflush_interval 1h")).start()
    kit.script.then = TransientError("down")
    await kit.emit("t", {"x": "y" * 900})
    wait = kit.offer("t", {"x": "y" * 900})
    await kit.stop()
    with pytest.raises(BufferOverflow, match="shutting down"):
        await wait
    with pytest.raises(BufferOverflow, match="shutting down"):
        await kit.emit("t", {"x": 1})


async def test_a_producer_that_goes_away_leaves_nothing():
    kit = await Kit(conf("total_limit_size 1k\noverflow_action block\nflush_interval 1s")).start()
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate]
    await kit.emit("t", {"n": 0, "x": "y" * 900})
    gone = asyncio.ensure_future(kit.offer("t", {"n": 1, "x": "y" * 900}))
    stays = asyncio.ensure_future(kit.offer("t", {"n": 2, "x": "y" * 900}))
    await kit.clock.elapse(2)
    gone.cancel()
    gate.set_result(None)
    await kit.clock.elapse(2)
    await stays
    assert [record["n"] for record in kit.script.got] == [0, 2]
    await kit.stop()


async def test_drop_oldest_chunk():
    kit = await Kit(conf("total_limit_size 4k\nchunk_limit_size 1k\noverflow_action drop_oldest_chunk")).start()
    kit.script.then = TransientError("down")
    for n in range(100):
        await kit.emit("t", {"n": n, "x": "y" * 100})
    assert kit.stats()["dropped"]["oldest_dropped"] > 50
    assert kit.stats()["buffer_total_queued_size"] <= 4096
    kit.script.then = None
    await kit.clock.elapse(100)
    got = [record["n"] for record in kit.script.got]
    assert got[-1] == 99
    assert got == list(range(got[0], 100))
    assert kit.balanced()
    await kit.stop()


class Json(Script):
    name = "json"
    policy = "reject"

    def format(self, tag, time, record):
        if record.get("skip"):
            return None
        return json.dumps(record, allow_nan=False).encode("utf-8") + b"\n"

    def format_failed(self, tag, time, record, error):
        if self.policy == "reject":
            raise error
        return json.dumps({"m": None}).encode() + b"\n"

    async def write(self, chunk, lane):
        self.raw.append(chunk.read())


async def test_a_record_that_cannot_be_encoded_does_not_block_its_neighbours():
    records = [{"m": "ok1"}, {"m": b"\xff\xfe"}, {"m": float("nan")}, {"m": "ok2"}, {"skip": True}]
    for policy, kept, rejected in (("reject", 2, 2), ("replace", 4, 0)):
        kit = await Kit(conf("flush_interval 1s", ERROR, kind="json"), plugins=[Json]).start()
        kit.of(Json).policy = policy
        await kit.emit("t", *records)
        await kit.clock.elapse(1.1)
        lines = b"".join(kit.of(Json).raw).splitlines()
        assert len(lines) == kept
        assert lines[0] == b'{"m": "ok1"}'
        assert lines[-1] == b'{"m": "ok2"}'
        assert len(kit.of(Direct).events) == rejected
        assert kit.stats()["dropped"] | {"rejected": rejected, "left_out": 1} == kit.stats()["dropped"]
        assert kit.balanced()
        await kit.stop()


async def test_a_record_that_msgpack_cannot_hold_is_rejected_alone():
    kit = await Kit(conf("flush_interval 1s", ERROR)).start()
    await kit.emit("t", {"n": 1})
    await kit.emit("t", {"n": 2}, {"n": object()}, {"n": 3})
    await kit.clock.elapse(1.1)
    assert [record["n"] for record in kit.script.got] == [1, 2, 3]
    assert len(kit.of(Direct).events) == 1
    await kit.stop()


async def test_a_malformed_packed_batch_is_an_error_and_not_stored():
    kit = await Kit(conf(argument="$.a")).start()
    with pytest.raises(ValueError, match="cut short"):
        kit.pipeline.router.emit("t", Batch.from_packed(b"\x92\x01\x81\xa1a", 1))
    assert kit.stats()["buffered"] == 0
    await kit.stop()


@pytest.mark.parametrize("compress", ["gzip", "zstd"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_compressed_chunk_is_one_member(compress, at_once):
    class Raw(Script):
        name = "raw"

        async def write(self, chunk, lane):
            self.raw.append(chunk.read_compressed(compress))
            self.raw.append(chunk.read_compressed("gzip"))
            self.chunks.append(chunk.events())

    kit = await Kit(conf(f"compress {compress}\nflush_interval 1s", kind="raw"), plugins=[Raw]).start()
    records = [{"n": n, "text": "hello " * 5} for n in range(50)]
    if at_once:
        await kit.emit("t", *records)
    else:
        for record in records:
            await kit.emit("t", record)
    await kit.clock.elapse(1.1)
    output = kit.of(Raw)
    assert output.got == records
    own, plain = output.raw
    if compress == "gzip":
        assert own == plain
        data = gzip.decompress(own)
        assert own.count(b"\x1f\x8b\x08") == 1
    else:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(own)
    assert gzip.decompress(plain) == data
    assert len(own) < len(data) / 4
    await kit.stop()


async def test_chunk_keys_and_metadata():
    kit = await Kit(conf("timekey 60\ntimekey_wait 5\ntimekey_use_utc true", argument="tag,time,a,$.b.c")).start()
    base = kit.clock.wall_ns() // 10**9 // 60 * 60
    for second, a in ((0, 1), (59, 1), (60, 1), (0, True), (0, 1.0), (0, None), (0, "1"), (0, {"k": 1}), (0, {"k": 1})):
        await kit.emit("t", {"a": a, "b": {"c": "x"}}, time=(base + second) * 10**9)
    assert kit.stats()["buffer_stage_length"] == 7
    await kit.clock.elapse(64 - (kit.clock.wall_ns() // 10**9 - base))
    assert kit.script.chunks == []
    await kit.clock.elapse(1.1)
    assert len(kit.script.chunks) == 6
    assert kit.stats()["buffer_oldest_timekey"] == base + 60
    meta = kit.script.metas[0]
    assert (meta.tag, meta.timekey, meta.variables) == ("t", base, {"a": 1, "$.b.c": "x"})
    await kit.stop()


async def test_flush_modes():
    kit = await Kit(conf("flush_mode immediate")).start()
    await kit.emit("t", {"n": 1})
    await kit.work()
    assert kit.script.got == [{"n": 1}]
    await kit.stop()
    kit = await Kit(conf("flush_mode lazy")).start()
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(10_000)
    assert kit.script.got == []
    kit.pipeline.flush()
    await kit.work()
    assert kit.script.got == [{"n": 1}]
    await kit.stop()
    kit = await Kit(conf("flush_interval 0")).start()
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(0.01)
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


async def test_the_interval_queues_no_more_than_queued_chunks_limit_size():
    kit = await Kit(conf("flush_interval 1s\nqueued_chunks_limit_size 2", argument="tag")).start()
    gate = asyncio.get_running_loop().create_future()
    kit.script.answers = [gate]
    for n in range(10):
        await kit.emit(f"t{n}", {"n": n})
    await kit.clock.elapse(5)
    assert kit.stats()["buffer_in_flight"] == 1
    assert kit.stats()["buffer_queue_length"] == 2
    gate.set_result(None)
    await kit.work()
    await kit.clock.elapse(1)
    assert len(kit.script.got) == 10
    await kit.stop()


async def test_a_repeated_batch_with_an_id_is_stored_once():
    kit = await Kit(conf("flush_interval 1s")).start()
    for _ in range(3):
        batch = Batch.of([(1, {"n": 1})])
        batch.id = b"abc"
        assert kit.pipeline.router.emit("t", batch) is None
    await kit.clock.elapse(2)
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


step = st.one_of(
    st.tuples(st.just("emit"), st.integers(0, 2), st.lists(st.integers(0, 400), min_size=1, max_size=8)),
    st.tuples(st.just("time"), st.sampled_from([0.1, 1.0, 3.0]), st.none()),
    st.tuples(st.just("answer"), st.sampled_from(["ok", "fail", "bad"]), st.none()),
)


@given(
    st.lists(step, max_size=40),
    st.sampled_from(["throw_exception", "drop_oldest_chunk", "block"]),
    st.sampled_from(["", "tag"]),
    st.sampled_from(["text", "gzip"]),
    st.sampled_from([None, 1, 3]),
)
@settings(max_examples=40, deadline=None)
def test_every_event_is_accounted_for(steps, action, argument, compress, records):
    """A model of the buffer: whatever happens, nothing is lost, repeated or counted twice."""

    async def run() -> None:
        text = conf(
            f"total_limit_size 3k\nchunk_limit_size 1k\noverflow_action {action}\ncompress {compress}\n"
            f"flush_interval 1s\nflush_thread_count 2\nretry_max_times 2\ndisable_chunk_backup true\n"
            + (f"chunk_limit_records {records}" if records else ""),
            ERROR,
            argument,
        )
        kit = await Kit(text).start()
        number = 0
        accepted: set[int] = set()
        waits: list[tuple[asyncio.Future[None], set[int]]] = []
        for kind, what, sizes in steps:
            if kind == "time":
                await kit.clock.elapse(what)
            elif kind == "answer":
                kit.script.then = {"ok": None, "fail": TransientError("x"), "bad": ValueError("x")}[what]
            else:
                batch = []
                for size in sizes:
                    batch.append({"n": number, "x": "é" * size if size < 300 else chr(9731) * size})
                    number += 1
                names = {record["n"] for record in batch}
                try:
                    wait = kit.offer(f"t{what}", *batch)
                except BufferOverflow:
                    assert action != "block"
                    continue
                if wait is None:
                    accepted |= names
                else:
                    waits.append((asyncio.ensure_future(wait), names))
            figures = kit.stats()
            assert kit.balanced()
            assert figures["buffer_total_queued_size"] <= 3072
            assert figures["buffer_total_queued_size"] == sum(
                c.size for c in kit.pipeline.runners[0].buffer.everything()
            )
        kit.script.then = None
        for _ in range(60):
            await kit.clock.elapse(1)
        assert all(wait.done() for wait, _names in waits)
        for _wait, names in waits:
            accepted |= names
        figures = kit.stats()
        got = [record["n"] for record in kit.script.got]
        rejected = [record["n"] for _tag, _time, record in kit.of(Direct).events]
        assert len(got) == len(set(got)) == figures["delivered"]
        assert set(got) | set(rejected) <= accepted
        lost = figures["dropped"]["thrown_away"] + figures["dropped"]["oldest_dropped"]
        assert len(accepted) == len(got) + len(rejected) + lost
        assert figures["buffered"] == 0
        assert figures["buffer_total_queued_size"] == 0
        await kit.stop()

    asyncio.run(run())


async def test_chunks_of_one_record_are_made_in_one_pass(monkeypatch):
    kit = await Kit(conf("chunk_limit_records 1\nflush_interval 1s")).start()
    store = kit.script.runner.buffer.store
    writes = []
    write = store.write
    monkeypatch.setattr(store, "write", lambda pieces, name: writes.append(len(pieces)) or write(pieces, name))
    await kit.emit("t", *[{"n": n} for n in range(50)])
    await settle(100)
    assert writes == [50]
    assert kit.script.got == [{"n": n} for n in range(50)]
    assert len({name for _when, name in kit.script.tries}) == 50
    assert kit.stats()["buffer_total_queued_size"] == 0
    assert kit.balanced()
    await kit.stop()


async def test_one_bad_record_among_chunks_of_one_record():
    kit = await Kit(conf("chunk_limit_records 1\nchunk_limit_size 1k\nflush_interval 1s", ERROR)).start()
    await kit.emit("t", *batch_of_ten())
    await kit.clock.elapse(2)
    assert [record["n"] for _tag, _time, record in kit.of(Direct).events] == [4]
    assert [record["n"] for record in kit.script.got] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert kit.balanced()
    await kit.stop()
