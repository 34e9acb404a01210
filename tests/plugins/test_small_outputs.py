"""Outputs buffer, secondary_file, roundrobin, and the buffer file_single."""

import gzip
import zlib

import pytest

from headrace.errors import BufferOverflow, Unrecoverable
from headrace.pipeline.context import Settings
from headrace.pipeline.event import pack_event, unpack_events
from headrace.plugins.out_roundrobin import turns
from headrace.testing.pipelines import Direct, Kit, TransientError

BUFFER = """
<match **>
  @type buffer
  @id stage
  @label @NEXT
  <buffer {}>
    path {}
  </buffer>
</match>
<label @NEXT>
  <match **>
    @type direct
  </match>
</label>
"""


async def test_a_stage_keeps_events_and_emits_them_in_its_label(tmp_path):
    kit = await Kit(BUFFER.format("", tmp_path / "b")).start()
    await kit.emit("a.b", {"n": 1})
    await kit.emit("c", {"n": 2})
    assert kit.of(Direct).events == []
    await kit.clock.elapse(10.1)
    assert [(tag, record) for tag, _time, record in kit.of(Direct).events] == [("a.b", {"n": 1}), ("c", {"n": 2})]
    await kit.stop()


async def test_a_stage_tries_again_when_what_follows_is_full(tmp_path):
    kit = await Kit(BUFFER.format("", tmp_path / "b")).start()
    kit.of(Direct).error = BufferOverflow("full")
    await kit.emit("a", {"n": 1})
    await kit.clock.elapse(11)
    kit.of(Direct).error = None
    await kit.clock.elapse(30)
    assert [record for _tag, _time, record in kit.of(Direct).events] == [{"n": 1}]
    await kit.stop()


DLQ = """
<match t>
  @type script
  <buffer tag>
    flush_interval 1s
    retry_max_times 0
  </buffer>
  <secondary>
    @type buffer
    @label @DLQ
  </secondary>
</match>
<label @DLQ>
  <match **>
    @type direct
  </match>
</label>
"""


async def test_a_secondary_may_emit_what_was_given_up_in_a_label():
    kit = await Kit(DLQ).start()
    kit.script.then = TransientError("down")
    await kit.emit("t", {"n": 1})
    await kit.clock.elapse(1.5)
    assert [(tag, record) for tag, _time, record in kit.of(Direct).events] == [("t", {"n": 1})]
    assert kit.balanced()
    await kit.stop()
    formatted = DLQ.replace("@type script", "@type http\nendpoint http://127.0.0.1:9")
    assert "formats its events" in Kit(formatted).errors[0]


def test_a_stage_needs_the_tag_and_another_label(tmp_path):
    assert "must have the tag" in Kit(BUFFER.format("n", tmp_path / "b")).errors[0]
    assert "go round" in Kit(BUFFER.format("", tmp_path / "b").replace("@label @NEXT", "@label @ROOT")).errors[0]


SECONDARY = """
<match **>
  @type script
  <buffer tag>
    flush_interval 1s
    retry_max_times 0
  </buffer>
  <secondary>
    @type secondary_file
    directory {}
    {}
  </secondary>
</match>
"""


async def dump(folder, lines, *batches):
    kit = await Kit(SECONDARY.format(folder, lines), settings=Settings(root_dir=str(folder))).start()
    kit.script.then = Unrecoverable("no")
    for tag, number in batches:
        await kit.emit(tag, {"n": number})
        await kit.clock.elapse(1.5)
    assert kit.balanced()
    await kit.stop()


def numbers(path):
    data = path.read_bytes()
    return [record["n"] for _time, record in unpack_events(gzip.decompress(data) if path.suffix == ".gz" else data)]


async def test_each_chunk_has_a_file(tmp_path):
    await dump(tmp_path / "d", "", ("t", 1), ("t", 2))
    assert numbers(tmp_path / "d" / "dump.bin.0") == [1]
    assert numbers(tmp_path / "d" / "dump.bin.1") == [2]


async def test_chunks_can_be_appended_and_compressed(tmp_path):
    await dump(tmp_path / "d", "append true\ncompress gzip\nbasename x.${tag}", ("t", 1), ("t", 2), ("u", 3))
    assert numbers(tmp_path / "d" / "x.t.gz") == [1, 2]
    assert numbers(tmp_path / "d" / "x.u.gz") == [3]


async def test_tags_do_not_lead_out_of_the_directory(tmp_path):
    await dump(tmp_path / "d", "basename x${tag}", ("/../../../up", 1))
    assert not (tmp_path / "up.0").exists()
    assert list((tmp_path / "d" / "backup" / "worker0").rglob("*.log"))


def test_secondary_file_is_only_a_secondary(tmp_path):
    assert "<secondary>" in Kit(f"<match **>\n@type secondary_file\ndirectory {tmp_path}\n</match>").errors[0]
    assert "basename" in Kit(SECONDARY.format(tmp_path, "basename a/b")).errors[0]
    assert '"time" is not a chunk key' in Kit(SECONDARY.format(tmp_path, "basename x%Y")).errors[0]
    assert "is not a chunk key" in Kit(SECONDARY.format(tmp_path, "basename x${k}")).errors[0]


def rounds(*weights):
    stores = "\n".join(f"<store>\n@type direct\n{f'weight {one}' if one else ''}\n</store>" for one in weights)
    return f"<match **>\n@type roundrobin\n{stores}\n</match>"


async def test_stores_take_turns():
    kit = await Kit(rounds(None, None, None)).start()
    for number in range(7):
        await kit.emit("t", {"n": number})
    got = [[record["n"] for _tag, _time, record in kit.of(Direct, one).events] for one in range(3)]
    assert got == [[0, 3, 6], [1, 4], [2, 5]]
    await kit.stop()


async def test_weights_say_how_often():
    kit = await Kit(rounds("6", "4", "2", "0")).start()
    for number in range(60):
        await kit.emit("t", {"n": number})
    assert [len(kit.of(Direct, one).events) for one in range(4)] == [30, 20, 10, 0]
    assert turns([3, 2, 1]) == [0, 1, 0, 2, 1, 0]
    await kit.stop()


async def test_an_error_of_a_store_is_that_of_the_batch():
    kit = await Kit(rounds(None, None)).start()
    kit.of(Direct, 0).error = TransientError("no")
    with pytest.raises(TransientError):
        kit.offer("t", {"n": 1})
    await kit.emit("t", {"n": 2})
    assert len(kit.of(Direct, 1).events) == 1
    await kit.stop()


@pytest.mark.parametrize("weight", ["-1", "x", "1.5"])
def test_weights_are_whole_numbers(weight):
    assert "weight" in Kit(rounds(weight, None)).errors[0]


def test_weights_cannot_all_be_zero():
    assert "weight 0" in Kit(rounds("0", "0")).errors[0]


SINGLE = """
<match **>
  @type script
  @id out
  <buffer {}>
    @type file_single
    path {}
    {}
  </buffer>
</match>
"""


@pytest.mark.parametrize("keys", ["time", "tag,k", "a,b"])
def test_file_single_has_the_tag_or_one_key(keys, tmp_path):
    assert "file_single cannot have" in Kit(SINGLE.format(keys, tmp_path, "timekey 1h")).errors[0]


@pytest.mark.parametrize(("keys", "variables"), [("", None), ("tag", None), ("k", {"k": "a/b"})])
async def test_file_single_takes_over_what_fluentd_left(keys, variables, tmp_path):
    data = pack_event(1, {"n": 1}) + pack_event(2, {"n": 2})
    name = "fsb.a%2Fb.{}" + "61" * 16 + ".buf"
    (tmp_path / name.format("b")).write_bytes(zlib.compress(data, wbits=31))
    (tmp_path / name.format("q").replace("61.buf", "62.buf")).write_bytes(data[:-1])
    root = Settings(root_dir=str(tmp_path / "root"))
    kit = await Kit(SINGLE.format(keys, tmp_path, "flush_interval 1s"), settings=root).start()
    await kit.work()
    assert [record["n"] for record in kit.script.got] == [1, 1, 2]
    assert kit.script.metas[0].tag == (None if variables else "a/b")
    assert kit.script.metas[0].variables == variables
    assert kit.balanced()
    await kit.stop()
