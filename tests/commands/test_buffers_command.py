"""`headrace buffers` and `headrace binlog` on what pipelines have left."""

import gzip
import json

import pytest

from headrace.cli import main
from headrace.pipeline.event import unpack_events
from headrace.pipeline.fluentfiles import read_meta
from headrace.testing.pipelines import Kit, TransientError

CONF = """
<system>
  root_dir {root}
</system>
<match **>
  @type http
  @id out
  endpoint http://127.0.0.1:9/
  <buffer tag>
    @type {kind}
    path {path}
    flush_interval 1h
    chunk_limit_records 2
    compress {compress}
  </buffer>
</match>
"""


async def filled(tmp_path, kind="file", compress="text", count=5):
    """A configuration whose buffer holds events n = 0 ... of tag a.b, and one of c."""
    text = CONF.format(root=tmp_path / "root", path=tmp_path / "b", kind=kind, compress=compress)
    conf = tmp_path / "fluent.conf"
    conf.write_text(text)
    kit = await Kit(text.replace("@type http", "@type script").replace("endpoint http://127.0.0.1:9/", "")).start()
    kit.script.then = TransientError("down")
    for number in range(count):
        await kit.emit("a.b", {"n": number}, time=10**18 + number)
    await kit.emit("c", {"n": "other"}, time=10**18)
    await kit.work()
    await kit.stop()
    return conf


def run(capsys, *flags):
    status = main([str(one) for one in flags])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


async def taken(tmp_path, folder):
    """What a pipeline on Fluentd's files delivers."""
    text = CONF.format(root=tmp_path / "other", path=folder, kind="file", compress="text").replace(
        "@type http", "@type script"
    )
    kit = await Kit(text.replace("endpoint http://127.0.0.1:9/", "")).start()
    await kit.work()
    await kit.stop()
    return [record["n"] for record in kit.script.got]


async def test_ls_shows_the_chunks(tmp_path, capsys):
    conf = await filled(tmp_path)
    rows = json.loads(run(capsys, "buffers", "ls", conf, "--json")[1])
    assert [(row["tag"], row["events"], row["kind"]) for row in rows] == [
        ("a.b", 2, "journal"),
        ("a.b", 2, "journal"),
        ("a.b", 1, "journal"),
        ("c", 1, "journal"),
    ]
    assert all(row["plugin"] == "out" and row["bytes"] > 0 and row["age"] >= 0 for row in rows)
    assert run(capsys, "buffers", "ls", "--buffer", tmp_path / "b")[1].count("\n") == 4
    assert run(capsys, "buffers", "ls")[0] == 1
    assert run(capsys, "buffers", "ls", "--buffer", tmp_path / "nowhere")[0] == 1


async def test_show_shows_one_with_its_events(tmp_path, capsys):
    conf = await filled(tmp_path, compress="gzip")
    first = json.loads(run(capsys, "buffers", "ls", conf, "--json")[1])[0]
    shown = json.loads(run(capsys, "buffers", "show", conf, first["id"], "--json")[1])
    assert shown["content"] == [[1e9, {"n": 0}], [1e9 + 1e-9, {"n": 1}]]
    assert '{"n": 0}' in run(capsys, "buffers", "show", "--buffer", tmp_path / "b", first["id"], "-n", "1")[1]
    assert run(capsys, "buffers", "show", conf, "ffffff")[0] == 1


@pytest.mark.parametrize("compress", ["text", "gzip"])
async def test_export_moves_chunks_into_fluentds_files(tmp_path, capsys, compress):
    conf = await filled(tmp_path, compress=compress)
    status, out, _err = run(capsys, "buffers", "export", conf, "--to", tmp_path / "to")
    assert status == 0
    assert "4 chunks" in out
    files = sorted((tmp_path / "to").glob("buffer.q*.log"))
    assert len(files) == 4
    for path in files:
        told = read_meta(path.with_name(f"{path.name}.meta").read_bytes())
        data = path.read_bytes()
        events = unpack_events(gzip.decompress(data) if compress == "gzip" else data)
        assert told.events == len(events)
        assert told.chunk_id.hex() in path.name
        assert told.meta.tag in {"a.b", "c"}
    assert json.loads(run(capsys, "buffers", "ls", conf, "--json")[1]) == []
    assert await taken(tmp_path, tmp_path / "to") == [0, 1, 2, 3, 4, "other"]


async def test_export_without_a_target_goes_where_fluentd_looks(tmp_path, capsys):
    conf = await filled(tmp_path)
    assert run(capsys, "buffers", "export", conf)[0] == 0
    assert len(list((tmp_path / "b").glob("buffer.q*.log"))) == 4
    assert {row["kind"] for row in json.loads(run(capsys, "buffers", "ls", conf, "--json")[1])} == {"file"}
    assert await taken(tmp_path, tmp_path / "b") == [0, 1, 2, 3, 4, "other"]


async def test_export_finds_what_a_worker_has_left_that_there_is_no_more(tmp_path, capsys):
    conf = await filled(tmp_path)
    (tmp_path / "b").rename(tmp_path / "worker3")
    (tmp_path / "b").mkdir()
    (tmp_path / "worker3").rename(tmp_path / "b" / "worker3")
    assert len(json.loads(run(capsys, "buffers", "ls", conf, "--json")[1])) == 4
    assert run(capsys, "buffers", "export", conf)[0] == 0
    assert len(list((tmp_path / "b").glob("buffer.q*.log"))) == 4
    assert json.loads(run(capsys, "dlq", "ls", conf, "--json")[1]) == []


async def test_export_may_copy_and_be_repeated(tmp_path, capsys):
    conf = await filled(tmp_path)
    for _ in range(2):
        assert run(capsys, "buffers", "export", conf, "--to", tmp_path / "to", "--keep")[0] == 0
    assert len(list((tmp_path / "to").glob("buffer.q*.log"))) == 4
    assert len(json.loads(run(capsys, "buffers", "ls", conf, "--json")[1])) == 4


async def test_export_to_file_single(tmp_path, capsys):
    conf = await filled(tmp_path, kind="file_single")
    assert run(capsys, "buffers", "export", conf)[0] == 0
    names = sorted(path.name.split(".q")[0] for path in (tmp_path / "b").glob("fsb.*.buf"))
    assert names == ["fsb.a.b", "fsb.a.b", "fsb.a.b", "fsb.c"]


async def test_export_needs_the_buffer_for_itself(tmp_path, capsys):
    text = CONF.format(root=tmp_path / "root", path=tmp_path / "b", kind="file", compress="text")
    conf = tmp_path / "fluent.conf"
    conf.write_text(text)
    kit = await Kit(text.replace("@type http", "@type script").replace("endpoint http://127.0.0.1:9/", "")).start()
    await kit.emit("a", {"n": 1})
    status, _out, err = run(capsys, "buffers", "export", conf, "--to", tmp_path / "to")
    assert status == 1
    assert "stop the headrace" in err
    await kit.stop()


async def test_binlog_shows_events_of_every_kind_of_file(tmp_path, capfdbinary):
    conf = await filled(tmp_path)
    main(["buffers", "export", str(conf), "--to", str(tmp_path / "to"), "--keep"])
    capfdbinary.readouterr()

    def show(*flags):
        assert main(["binlog", *map(str, flags)]) == 0
        return capfdbinary.readouterr().out.decode()

    (journal,) = (tmp_path / "b").glob("journal.0/*.journal")
    for source in (journal, tmp_path / "b", tmp_path / "b" / "journal.0", sorted((tmp_path / "to").glob("*.log"))):
        lines = show("cat", "-f", "json", *(source if isinstance(source, list) else [source])).splitlines()
        assert sorted(lines) == sorted(['{"n":0}', '{"n":1}', '{"n":2}', '{"n":3}', '{"n":4}', '{"n":"other"}'])
    assert show("head", "-n", "2", journal).count("\n") == 2
    assert "\ta.b\t" in show("head", "-n", "1", journal)
    dump = tmp_path / "dump.bin.0.gz"
    dump.write_bytes(gzip.compress(b"".join(path.read_bytes() for path in sorted((tmp_path / "to").glob("*.log")))))
    assert '"0"\n"1"\n' in show("cat", "--format", "csv", "-e", "fields=n", dump)
    assert "json\n" in show("formats")


def test_binlog_says_what_is_wrong(tmp_path, capsys):
    (tmp_path / "x").write_text("text")
    assert run(capsys, "binlog", "cat", tmp_path / "x")[0] == 1
    assert run(capsys, "binlog", "cat", tmp_path / "none")[0] == 1
    assert run(capsys, "binlog", "cat", "-f", "jsom", tmp_path / "x")[0] == 1
    (tmp_path / "empty").mkdir()
    assert "holds no chunks" in run(capsys, "binlog", "cat", tmp_path / "empty")[2]
