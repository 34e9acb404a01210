"""Dead letters: what is kept of chunks and records that nobody takes, and how they come back."""

from __future__ import annotations

import json
import os

import pytest

from headrace.cli import main as command
from headrace.errors import Unrecoverable
from headrace.pipeline.backup import default_root
from headrace.pipeline.event import pack_event, unpack_events
from headrace.pipeline.plugin import Filter
from headrace.testing.pipelines import Direct, Kit, TransientError


class Picky(Filter):
    """Refuses records with `bad`, while `strict`."""

    name = "picky"
    strict = True

    def filter(self, tag, time, record):
        if self.strict and "bad" in record:
            raise ValueError("bad record")
        return record


def conf(root, more="", system="", argument="tag") -> str:
    return f"""
<system>
  root_dir {root}
  {system}
</system>
<match t.**>
  @type script
  @id out
  <buffer {argument}>
    flush_interval 1s
    retry_max_times 1
    {more}
  </buffer>
</match>
<filter d>
  @type picky
</filter>
<match d>
  @type direct
</match>
"""


async def started(text) -> Kit:
    return await Kit(text, plugins=[Picky]).start()


def dlq(capsys, *flags):
    status = command(["dlq", *map(str, flags)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def listed(capsys, root, *flags):
    return json.loads(dlq(capsys, "ls", "--dir", root, "--json", *flags)[1])


async def give_up(kit, *numbers):
    kit.script.then = TransientError("no route to http://sink")
    for number in numbers:
        await kit.emit("t.x", {"n": number})
    await kit.clock.elapse(10)
    kit.script.then = None
    assert kit.stats()["dropped"]["backed_up"] == len(numbers)


async def test_a_letter_tells_why_it_is_there(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await give_up(kit, 1)
    (row,) = listed(capsys, tmp_path)
    assert row["plugin"] == "out"
    assert row["tag"] == "t.x"
    assert row["attempts"] == 2
    assert row["events"] == 1
    assert "no route to http://sink" in row["error"]
    assert row["reason"] == "given up"
    assert row["failed_since"] <= row["given_up"] or row["failed_since"] > 0
    status, out, _err = dlq(capsys, "show", row["id"][:8], "--dir", tmp_path)
    assert status == 0
    assert '{"n": 1}' in out
    # Fluentd's own layout is as it ever was: one file, the content of the chunk.
    (file,) = (tmp_path / "backup" / "worker0" / "out").iterdir()
    assert file.name == f"{row['id']}.log"
    assert [record for _time, record in unpack_events(file.read_bytes())] == [{"n": 1}]
    await kit.stop()


@pytest.mark.parametrize("buffer", ["", "@type file\npath {root}/b"])
async def test_a_replay_is_delivered_by_the_output_that_gave_up(tmp_path, capsys, buffer):
    kit = await started(conf(tmp_path, buffer.format(root=tmp_path)))
    await give_up(kit, 1, 2)
    (row,) = listed(capsys, tmp_path)[:1]
    assert dlq(capsys, "replay", "--dir", tmp_path, "--id", row["id"])[0] == 0
    assert row["id"] not in {one["id"] for one in listed(capsys, tmp_path) if not one["waits"]}
    await kit.clock.elapse(6)
    assert len(kit.script.got) == len(kit.script.chunks[0])
    assert kit.script.metas[0].tag == "t.x"
    assert kit.balanced()
    await kit.stop()


async def test_a_letter_that_fails_again_is_a_letter_again(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await give_up(kit, 1)
    (before,) = listed(capsys, tmp_path)
    dlq(capsys, "replay", "--dir", tmp_path, "--all")
    kit.script.then = Unrecoverable("still bad")
    await kit.clock.elapse(6)
    (after,) = listed(capsys, tmp_path)
    assert after["id"] == before["id"]
    assert "still bad" in after["error"]
    assert kit.balanced()
    await kit.stop()


async def test_nothing_is_replayed_that_was_not_asked_for(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await give_up(kit, 1)
    await kit.stop()
    kit = await started(conf(tmp_path))
    await kit.clock.elapse(30)
    assert kit.script.got == []
    await kit.stop()
    dlq(capsys, "replay", "--dir", tmp_path, "--all")  # what was asked for while nothing ran is delivered at the start
    kit = await started(conf(tmp_path))
    await kit.work()
    assert kit.script.got == [{"n": 1}]
    await kit.stop()


async def test_the_oldest_letters_go_when_there_are_too_many(tmp_path, capsys, caplog):
    size = len(pack_event(10**18, {"n": "x" * 1000}))
    kit = await started(conf(tmp_path, system=f"<dead_letter>\nlimit_size {3 * size + 1500}\n</dead_letter>"))
    kit.script.then = Unrecoverable("no")
    for number in range(6):
        await kit.emit("t.x", {"n": str(number) * 1000})
        await kit.clock.elapse(1.5)
    for number, path in enumerate(sorted((tmp_path / "backup" / "worker0" / "out").iterdir())):
        os.utime(path, (number, number))
    assert len(listed(capsys, tmp_path)) <= 4
    figures = kit.pipeline.stats()["dead_letters"]
    assert figures["dropped"] >= 2
    assert figures["bytes"] <= 3 * size + 1500
    assert "limit_size" in caplog.text
    await kit.stop()


async def test_purge_needs_to_be_told_what(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await give_up(kit, 1)
    await kit.stop()
    assert dlq(capsys, "purge", "--dir", tmp_path)[0] == 1
    assert dlq(capsys, "purge", "--dir", tmp_path, "--id", "ffff")[0] == 1
    assert dlq(capsys, "purge", "ffff", "--dir", tmp_path)[0] == 1
    assert dlq(capsys, "ls", "one.conf", "two.conf")[0] == 1
    dlq(capsys, "purge", "--dir", tmp_path, "--older-than", "1d")
    assert len(listed(capsys, tmp_path)) == 1
    assert dlq(capsys, "purge", "--dir", tmp_path, "--all") == (0, "1 letters are removed\n", "")
    assert listed(capsys, tmp_path) == []
    assert dlq(capsys, "ls", "--dir", tmp_path)[1] == "no dead letters\n"


async def test_records_that_were_refused_are_kept_and_can_go_their_way_again(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await kit.emit("d", {"n": 1}, {"bad": 2}, {"bad": 3})
    assert [record for _tag, _time, record in kit.of(Direct).events] == [{"n": 1}]
    await kit.clock.elapse(70)
    (row,) = listed(capsys, tmp_path)
    assert (row["plugin"], row["reason"], row["events"], row["tag"]) == ("errors@ROOT", "refused", 2, "d")
    assert "bad record" in row["error"]
    stats = kit.pipeline.stats()
    assert (stats["error_events"], stats["error_events_kept"], stats["error_events_lost"]) == (2, 2, 0)
    kit.of(Picky).strict = False
    dlq(capsys, "replay", "--dir", tmp_path, "--of", "errors@ROOT", "--all")
    await kit.clock.elapse(6)
    assert [record for _tag, _time, record in kit.of(Direct).events] == [{"n": 1}, {"bad": 2}, {"bad": 3}]
    assert listed(capsys, tmp_path) == []
    await kit.stop()


async def test_refused_records_survive_the_end_and_need_no_space_in_tmp(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await kit.emit("d", {"bad": 1})
    await kit.stop()
    assert [row["events"] for row in listed(capsys, tmp_path)] == [1]
    kit = await started(conf(tmp_path, system="<dead_letter>\nrecords false\n</dead_letter>"))
    await kit.emit("d", {"bad": 1})
    assert kit.pipeline.stats()["error_events_lost"] == 1
    await kit.stop()


async def test_a_record_that_cannot_be_packed_is_kept_as_far_as_it_can_be(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    await kit.emit("t.x", {"deep": deep}, {"n": 1})
    await kit.clock.elapse(1.5)
    assert kit.script.got == [{"n": 1}]
    assert kit.balanced()
    await kit.stop()
    (row,) = listed(capsys, tmp_path)
    assert row["events"] == 1


async def test_letters_of_fluentd_are_shown_and_replayed_with_a_tag(tmp_path, capsys):
    folder = tmp_path / "backup" / "worker0" / "out"
    folder.mkdir(parents=True)
    (folder / f"{'61' * 16}.log").write_bytes(pack_event(1, {"n": 1}))
    (row,) = listed(capsys, tmp_path)
    assert row["events"] is None
    assert dlq(capsys, "replay", "--dir", tmp_path, "--all")[0] == 1
    assert dlq(capsys, "replay", "--dir", tmp_path, "--all", "--tag", "t.y")[0] == 0
    kit = await started(conf(tmp_path))
    await kit.work()
    assert kit.script.got == [{"n": 1}]
    assert kit.script.metas[0].tag == "t.y"
    await kit.stop()


def test_what_is_neither_an_id_nor_an_age_is_said_to_be_so(capsys, tmp_path):
    (tmp_path / "fluent.conf").write_text(f"<system>\nroot_dir {tmp_path}\n</system>\n")
    status, _, err = dlq(capsys, "show", tmp_path / "fluent.conf", "nope")
    assert status == 1
    assert '"nope" is no id of a letter' in err
    with pytest.raises(SystemExit):
        dlq(capsys, "purge", "--older-than", "30x")
    assert '"30x" is no age' in capsys.readouterr().err


async def test_pipelines_without_a_root_dir_do_not_share_letters(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HEADRACE_DEAD_LETTERS", str(tmp_path / "letters"))
    text = "<match **>\n  @type file\n  path /x/${tag}\n  <buffer tag>\n    @type memory\n  </buffer>\n</match>\n"
    roots = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        conf = tmp_path / name / "fluent.conf"
        conf.write_text(text)
        root = default_root(str(conf))
        folder = os.path.join(root, "backup", "worker0", "output_file.1")
        os.makedirs(folder)
        with open(os.path.join(folder, f"{name.encode().hex()}.log"), "wb") as file:
            file.write(b"x")
        roots.append((str(conf), root))
    assert roots[0][1] != roots[1][1]
    assert os.path.dirname(roots[0][1]) == str(tmp_path / "letters")
    for (conf, _root), name in zip(roots, ("one", "two"), strict=True):
        rows = json.loads(dlq(capsys, "ls", conf, "--json")[1])
        assert [row["id"] for row in rows] == [name.encode().hex()]
    assert len(json.loads(dlq(capsys, "ls", "--json")[1])) == 2
    dlq(capsys, "purge", roots[0][0], "--all")
    assert [row["id"] for row in json.loads(dlq(capsys, "ls", "--json")[1])] == [b"two".hex()]


async def test_what_waits_for_its_output_is_shown_and_goes_only_by_its_id(tmp_path, capsys):
    kit = await started(conf(tmp_path))
    await give_up(kit, 1)
    await kit.stop()
    (row,) = listed(capsys, tmp_path)
    assert not row["waits"]
    assert dlq(capsys, "replay", "--dir", tmp_path, "--all")[1].startswith("1 letters")
    (row,) = listed(capsys, tmp_path)
    assert row["waits"]
    assert "(waits for its output)" in dlq(capsys, "ls", "--dir", tmp_path)[1]
    assert dlq(capsys, "replay", "--dir", tmp_path, "--all")[1].startswith("0 letters")
    assert dlq(capsys, "purge", "--dir", tmp_path, "--all")[1].startswith("0 letters")
    assert dlq(capsys, "purge", "--dir", tmp_path, row["id"])[1].startswith("1 letters")
    assert listed(capsys, tmp_path) == []
