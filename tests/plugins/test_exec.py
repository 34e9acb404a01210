"""in_exec, out_exec and out_exec_filter with real processes."""

import asyncio
import contextlib
import logging
import os
import sys
import time

import msgpack
import pytest

from headrace.core.clock import Clock
from headrace.plugins.exec.child import Child, ended_how
from headrace.plugins.exec.reading import JsonValues, Lines, MsgpackValues, decoder_for
from headrace.plugins.in_exec import ExecInput
from headrace.plugins.network.frames import FrameError
from headrace.plugins.out_exec import ExecOutput
from headrace.plugins.out_exec_filter import ExecFilterOutput
from headrace.testing.pipelines import Direct, Kit

SOURCE = "<source>\n@type exec\n{lines}\n</source>\n<match **>\n@type direct\n</match>\n"
TAKE = "<match back.**>\n@type direct\n</match>\n"


class Real(Kit):
    """A pipeline in real time, for processes live in it."""

    async def __aenter__(self):
        self.problems.raise_first()
        loop = asyncio.get_running_loop()
        self.real = Clock(loop)
        await self.pipeline.start(loop, self.real)
        return self

    async def __aexit__(self, *_):
        async with asyncio.timeout(20):
            await self.pipeline.stop(5.0)

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    @property
    def got(self):
        return [record for _, _, record in self.of(Direct).events]


def running(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def zombies():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
                if fields[0] == "Z" and int(fields[1]) == os.getpid():
                    found.append(int(name))
    return found


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        ("command printf 'a\\tb\\nc\\td'\ntag t\n<parse>\nkeys x,y\n</parse>", [{"x": "a", "y": "b"}, {"x": "c", "y": "d"}]),
        ('command ["printf", "1 2"]\ntag t\n<parse>\n@type none\n</parse>', [{"message": "1 2"}]),
        ("command \"echo '{\\\"a\\\":1}{\\\"a\\\":[\\n2]} [3]'\"\ntag t\nformat json", [{"a": 1}, {"a": [2]}]),
        ("command echo hi; echo oops >&2\ntag t\nconnect_mode read_with_stderr\nformat none", [{"message": "hi"}, {"message": "oops"}]),
        ("command echo hi; echo oops >&2\ntag t\nformat none", [{"message": "hi"}]),
        ("command printf '\\202\\240'\ntag t\nencoding Shift_JIS\nformat none", [{"message": "あ"}]),
    ],
)  # fmt: skip
async def test_what_a_command_prints(lines, events):
    async with Real(SOURCE.format(lines=lines)) as kit:
        await kit.until(lambda: len(kit.got) >= len(events))
        assert kit.got == events
        assert kit.of(ExecInput).stats()["runs"] == 1
    assert zombies() == []


async def test_tag_and_time_from_the_record():
    lines = "command printf 'x\\t1700000000.5\\tv\\n'\nkeys tag,time,k\ntag_key tag\ntime_key time"
    async with Real(SOURCE.format(lines=lines)) as kit:
        await kit.until(lambda: kit.got)
        assert kit.of(Direct).events == [("x", 1_700_000_000_500_000_000, {"k": "v"})]


async def test_old_parameters_with_a_format_of_times():
    lines = "command printf '2024-02-28 12:00:00\\tv\\n'\ntag t\nkeys time,k\ntime_key time\ntime_format %Y-%m-%d %H:%M:%S\nutc"
    made = Real(SOURCE.format(lines=lines))
    async with made as kit:
        await kit.until(lambda: kit.got)
        assert kit.of(Direct).events == [("t", 1_709_121_600_000_000_000, {"k": "v"})]


async def test_intervals_leave_out_what_would_overlap(tmp_path):
    lines = "command echo x; sleep 0.3\ntag t\nrun_interval 0.05\nformat none"
    async with Real(SOURCE.format(lines=lines)) as kit:
        source = kit.of(ExecInput)
        await kit.until(lambda: source.stats()["runs"] >= 2 and len(kit.got) >= 2)
        assert source.stats()["skipped"] >= 1
    assert zombies() == []


async def test_a_command_that_takes_too_long_is_ended():
    lines = "command echo x; sleep 60\ntag t\ncommand_timeout 0.2\nformat none"
    async with Real(SOURCE.format(lines=lines)) as kit:
        source = kit.of(ExecInput)
        await kit.until(lambda: source.stats()["failures"])
        assert kit.got == [{"message": "x"}]
        await kit.until(lambda: source._child is None)
    assert zombies() == []


async def test_only_an_end_that_we_did_not_ask_for_is_warned_of(caplog):
    caplog.set_level(logging.INFO)
    async with Real(SOURCE.format(lines="command echo x; kill -TERM $$\ntag t\nformat none")) as kit:
        await kit.until(lambda: "signal SIGTERM" in caplog.text)
    async with Real(SOURCE.format(lines="command echo x; exec sleep 60\ntag t\nformat none")) as kit:
        await kit.until(lambda: kit.got)
    levels = [record.levelname for record in caplog.records if "signal SIGTERM" in record.getMessage()]
    assert levels == ["WARNING", "INFO"]


async def test_everything_a_command_has_started_ends_with_us(tmp_path):
    file = tmp_path / "pid"
    lines = f"command trap '' TERM; sleep 61 & echo $! > {file}; echo ready; wait; sleep 62\ntag t\nformat none"
    before = time.monotonic()
    async with Real(SOURCE.format(lines=lines)) as kit:
        await kit.until(lambda: kit.got)
        inner = int(file.read_text())
        assert running(inner)
    assert not running(inner)
    assert time.monotonic() - before < 60
    assert zombies() == []


async def test_a_command_that_does_not_exist(caplog):
    async with Real(SOURCE.format(lines='command ["/no/such/program"]\ntag t\nformat none')) as kit:
        await kit.until(lambda: kit.of(ExecInput).stats()["failures"])
    assert "cannot start /no/such/program" in caplog.text


OUT = "<match t>\n@type exec\n{lines}\n</match>\n"


async def test_out_exec_gives_a_file_to_the_command(tmp_path):
    lines = f"command cat >>{tmp_path}/out <\n<format>\nkeys a,b\n</format>\n<buffer>\nflush_interval 0.05\n</buffer>"
    async with Real(OUT.format(lines=lines)) as kit:
        await kit.emit("t", {"a": 1, "b": "x"}, {"a": 2})
        await kit.until(lambda: kit.stats()["delivered"] == 2)
        assert (tmp_path / "out").read_bytes() == b"1\tx\n2\t\n"
        assert kit.balanced()
    assert zombies() == []


async def test_out_exec_inject_and_formats(tmp_path):
    lines = (
        "command cp \n<format>\n@type json\n</format>\n<inject>\ntime_key at\ntag_key tag\n</inject>\n"
        "<buffer>\nflush_interval 0.05\n</buffer>"
    ).replace("cp ", f'["{tmp_path}/copy"]')
    script = tmp_path / "copy"
    script.write_text(f"#!/bin/sh\ncat $1 >> {tmp_path}/out\n")
    script.chmod(0o755)
    async with Real(OUT.format(lines=lines)) as kit:
        await kit.emit("t", {"a": 1}, time=1_700_000_000_000_000_000)
        await kit.until(lambda: kit.stats()["delivered"] == 1)
    assert (tmp_path / "out").read_bytes() == b'{"a":1,"tag":"t","at":"2023-11-14T22:13:20Z"}\n'


async def test_out_exec_tries_again_what_fails(tmp_path):
    lines = (
        f"command test -e {tmp_path}/go && cat >>{tmp_path}/out <\n<format>\nkeys a\n</format>\n"
        "<buffer>\nflush_interval 0.05\nretry_wait 0.05\nretry_type periodic\n</buffer>"
    )
    async with Real(OUT.format(lines=lines)) as kit:
        await kit.emit("t", {"a": 1})
        await kit.until(lambda: kit.of(ExecOutput).stats()["failures"] >= 2)
        (tmp_path / "go").touch()
        await kit.until(lambda: kit.stats()["delivered"] == 1)
        assert (tmp_path / "out").read_bytes() == b"1\n"
    assert zombies() == []


async def test_out_exec_commands_run_side_by_side_and_end_in_time(tmp_path):
    lines = (
        f"command echo >>{tmp_path}/began; sleep 60; true\ncommand_timeout 0.4\n<format>\nkeys a\n</format>\n"
        "<buffer>\nchunk_limit_records 1\nflush_interval 0.02\nretry_max_times 0\n</buffer>"
    )
    async with Real(OUT.format(lines=lines)) as kit:
        for number in range(3):
            await kit.emit("t", {"a": number})
        began = tmp_path / "began"
        await kit.until(lambda: began.exists() and len(began.read_bytes()) == 3)
        await kit.until(lambda: kit.of(ExecOutput).stats()["failures"] == 3)
    assert zombies() == []


FILTER = (
    "<match t>\n@type exec_filter\ntag back.x\n{lines}\n<buffer>\nflush_interval 0.02\n</buffer>\n</match>\n" + TAKE
)


async def test_exec_filter_brings_events_back():
    lines = "command sed -u s/a/b/\nin_keys m\nout_keys m"
    async with Real(FILTER.format(lines=lines)) as kit:
        await kit.emit("t", {"m": "cat"}, {"m": "hat"})
        await kit.until(lambda: len(kit.got) == 2)
        assert kit.got == [{"m": "cbt"}, {"m": "hbt"}]
        assert kit.of(Direct).events[0][0] == "back.x"
    assert zombies() == []


async def test_exec_filter_tags_and_times_go_both_ways():
    lines = (
        "command cat\nremove_prefix t\nadd_prefix back\nin_keys tag,time,m\nout_keys tag,time,m\ntag_key tag\n"
        "time_key time\ntime_format %Y-%m-%dT%H:%M:%SZ"
    )
    text = FILTER.format(lines=lines).replace("tag back.x\n", "").replace("<match t>", "<match t.**>")
    async with Real(text) as kit:
        await kit.emit("t.a", {"m": "x"}, time=1_700_000_000_000_000_000)
        await kit.until(lambda: kit.got)
        ((tag, _, record),) = kit.of(Direct).events
        assert (tag, record) == ("back.a", {"m": "x"})


async def test_a_time_format_makes_times_texts():
    lines = (
        "command cat\n<inject>\ntime_key at\ntime_format %Y\n</inject>\n<format>\nkeys at\n</format>\n"
        "<parse>\nkeys at\n</parse>\n<extract>\ntime_key at\ntime_format %Y\nutc true\n</extract>"
    )
    async with Real(FILTER.format(lines=lines)) as kit:
        await kit.emit("t", {}, time=1_700_000_000_000_000_000)
        await kit.until(lambda: kit.got)
        assert kit.of(Direct).events == [("back.x", 1_672_531_200_000_000_000, {})]
    lines = "command echo 2023\ntag t\n<parse>\nkeys at\n</parse>\n<extract>\ntime_key at\ntime_format %Y\nutc true\n</extract>"
    async with Real(SOURCE.format(lines=lines)) as kit:
        await kit.until(lambda: kit.got)
        assert kit.of(Direct).events == [("t", 1_672_531_200_000_000_000, {})]


async def test_exec_filter_json_both_ways():
    lines = "command cat\n<format>\n@type json\n</format>\n<parse>\n@type json\n</parse>\nnum_children 3"
    async with Real(FILTER.format(lines=lines)) as kit:
        for number in range(30):
            await kit.emit("t", {"n": number, "deep": {"a": [1]}})
        await kit.until(lambda: len(kit.got) == 30)
        assert sorted(record["n"] for record in kit.got) == list(range(30))
        assert kit.of(ExecFilterOutput).stats()["children"] == 3


async def test_exec_filter_what_children_hold_at_the_end_comes_back():
    code = "import sys; data = sys.stdin.read(); sys.stdout.write(data)"
    lines = f"""command ["{sys.executable}", "-c", "{code}"]\nin_keys m\nout_keys m"""
    kit = Real(FILTER.format(lines=lines))
    async with kit:
        await kit.emit("t", *({"m": str(n)} for n in range(100)))
    assert [record["m"] for record in kit.got] == [str(n) for n in range(100)]
    assert zombies() == []


@pytest.mark.parametrize(("respawn", "ended"), [("inf", 3), ("2", 3), ("none", 1)])
async def test_exec_filter_children_that_die(respawn, ended):
    lines = f"command head -n 1\nin_keys m\nout_keys m\nchild_respawn {respawn}"
    async with Real(FILTER.format(lines=lines)) as kit:
        output = kit.of(ExecFilterOutput)
        for number in range(ended):
            await kit.until(lambda: output.stats()["children"] == 1)
            await kit.emit("t", {"m": str(number)})
            await kit.until(lambda n=number: len(kit.got) == n + 1 and output.stats()["ended"] == n + 1)
        if respawn != "inf":
            await kit.emit("t", {"m": "late"})
            await kit.until(lambda: kit.stats()["retry_count"] >= 1)
            assert output.stats()["children"] == 0
    assert zombies() == []


async def test_a_child_that_does_not_read_is_ended():
    clock = Clock(asyncio.get_running_loop())
    child = await Child.start("sleep 60", clock, read=True, write=True)
    writing = asyncio.create_task(child.write(b"x" * 1_000_000))
    await asyncio.sleep(0.05)
    assert not writing.done()
    await child.end()
    with pytest.raises(Exception, match="does not read any more"):
        await writing
    assert ended_how(await child.wait()) == "signal SIGTERM"


def test_cutting():
    lines = Lines()
    assert lines.feed(b"a\r\nb") == [b"a"]
    assert lines.end() == [b"b"]
    values = JsonValues()
    assert values.feed(b'{"a": 1}{"b"') == [b'{"a": 1}']
    assert values.feed(b": 2} [3]") == [b'{"b": 2}', b"[3]"]
    with pytest.raises(FrameError):
        values.feed(b"nonsense")
    packed = msgpack.packb({"a": 1}) + msgpack.packb([{"b": 2}])
    found = MsgpackValues()
    assert [*found.feed(packed[:3]), *found.feed(packed[3:])] == [packed[:4], packed[4:]]
    with pytest.raises(FrameError):
        found.feed(b"\xc1\xc1")


def test_encodings():
    assert decoder_for(None) is None
    assert decoder_for("UTF-8") is None
    assert decoder_for("ASCII-8BIT") is None
    decode = decoder_for("Windows-31J")
    assert decode(b"\x82", False) + decode(b"\xa0", True) == "あ".encode()
    with pytest.raises(ValueError, match="is no encoding"):
        decoder_for("klingon")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE.format(lines="command x"), "tag, or tag_key in <extract>"),
        (SOURCE.format(lines="tag t"), '"command" is required'),
        (SOURCE.format(lines="tag t\ncommand []"), "an array of texts is needed"),
        (SOURCE.format(lines="tag t\ncommand x\nencoding klingon\nformat none"), "is no encoding"),
        (SOURCE.format(lines="tag t\ncommand x\nrun_interval 0\nformat none"), '"run_interval" must be above 0'),
        (SOURCE.format(lines="tag t\ncommand x"), '"keys"'),
        (OUT.format(lines="command x\ncommand_timeout 0\n<format>\nkeys a\n</format>"), '"command_timeout"'),
        (FILTER.format(lines="command x\nin_keys a\nout_keys a\nchild_respawn often"), "none (or 0)"),
        (FILTER.format(lines="command x\nin_keys a\nout_keys a\nnum_children 0"), '"num_children"'),
    ],
)
def test_what_is_refused(text, message):
    errors = Kit(text).errors
    assert any(message in error for error in errors), errors
