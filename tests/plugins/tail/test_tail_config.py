"""Parameters: what is refused, what is told, and what lines become."""

import pytest
from tail_rig import NONE, Rig, write

from headrace.conf.params import declared
from headrace.plugins.in_tail import TailInput
from headrace.testing.pipelines import Direct, Kit


def errors(text, pos="pos_file /tmp/none/x.pos", path="path /tmp/none/x.log", tag="tag t", parse=NONE):
    source = (
        f"<source>\n@type tail\n{path}\n{pos}\n{tag}\n{text}\n{parse}\n</source>\n<match **>\n@type direct\n</match>"
    )
    return Kit(source).errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("enable_watch_timer false\nenable_stat_watcher false", "either of enable_watch_timer or enable_stat_watcher"),
        ("glob_policy always", "cannot use glob_policy as always with the default path_delimiter"),
        ("path_delimiter *", "are reserved words: *"),
        ("path_delimiter %", "are reserved words: %"),
        ("read_bytes_limit_per_second 8k\nenable_watch_timer false", "Need to enable watch timer"),
        ("from_encoding utf-8", "'from_encoding' parameter must be specified with 'encoding'"),
        ("encoding invalid_encoding", "unknown encoding name - invalid_encoding"),
        ("encoding utf-8\nfrom_encoding invalid_encoding", "unknown encoding name - invalid_encoding"),
        ("encoding utf-16le", "records cannot be utf-16le"),
        ("path_timezone Nowhere", "path_timezone"),
        ("read_lines_limit 0", 'parameter "read_lines_limit" must be more than 0'),
        ("<group>\nrate_period 5s\n</group>", "<rule> section is required"),
        ("<group>\n<rule>\nlimit -2\n</rule>\n</group>", 'parameter "limit" must be -1'),
        ("exclude_path /tmp/*[z-a]", "cannot be read"),
        ("refresh_intervall 5", 'unknown parameter "refresh_intervall"'),
    ],
)
def test_what_cannot_work_is_refused(text, message):
    found = errors(text)
    assert len(found) == 1, found
    assert message in found[0]
    assert "test.conf:" in found[0]


def test_more_that_cannot_work():
    assert "follow inodes without pos_file" in errors("follow_inodes true", pos="")[0]
    assert "<parse> section is required" in errors("", parse="")[0]
    assert "cannot include curly braces" in errors("glob_policy extended", path="path /tmp/{a,b}*.log")[0]
    assert "'path' parameter is required" in errors("", path="path ,")[0]
    assert 'parameter "tag" is required' in errors("", tag="")[0]


def test_one_position_file_for_one_source(tmp_path):
    source = f"<source>\n@type tail\npath /tmp/a\npos_file {tmp_path}/{{}}\ntag t\n{NONE}\n</source>\n"
    (tmp_path / "link").symlink_to(tmp_path)
    text = source.format("p") + source.format("link/p") + "<match **>\n@type direct\n</match>"
    found = Kit(text).errors
    assert len(found) == 1
    assert "already use same pos_file path: plugin_id = input_tail.1" in found[0]


def test_warnings():
    kit = Kit(f"<source>\n@type tail\npath /tmp/a\ntag t\nread_bytes_limit_per_second 1k\n{NONE}\n</source>\n")
    told = "\n".join(str(warning) for warning in kit.problems.warnings)
    assert "'pos_file PATH' parameter is not set" in told
    assert "Use 8192 for read_bytes_limit_per_second" in told
    assert kit.of(TailInput).read_bytes_limit_per_second == 8192


def test_the_old_style_of_parse():
    kit = Kit("<source>\n@type tail\npath /tmp/a\ntag t\nformat json\ntime_key when\n</source>")
    assert kit.errors == []
    parser = kit.of(TailInput)._parser
    assert (parser.type_, parser.time_key) == ("json", "when")
    kit = Kit("<source>\n@type tail\npath /tmp/a\ntag t\nformat /^(?<m>.*)$/\n</source>")
    assert kit.errors == []
    assert kit.of(TailInput)._parser.type_ == "regexp"
    kit = Kit(
        "<source>\n@type tail\npath /tmp/a\ntag t\nformat multiline\nformat_firstline /^A/\n"
        "format1 /^A(?<a>.*)\\n/\nformat2 /B(?<b>.*)/\n</source>"
    )
    assert kit.errors == []
    parser = kit.of(TailInput)._parser
    assert (parser.type_, parser.format2, parser.firstline(b"A1")) == ("multiline", "/B(?<b>.*)/", True)


def test_paths_are_split_and_each_counts_once():
    kit = Kit(f"<source>\n@type tail\npath /a/*.log|/b,c.log |/a/*.log\npath_delimiter |\ntag t\n{NONE}\n</source>")
    assert kit.of(TailInput).paths == ["/a/*.log", "/b,c.log"]


@pytest.mark.parametrize(
    ("tag", "expected"), [("a.*", "a.{p}"), ("*.b", "{p}.b"), ("a.*.b", "a.{p}.b"), ("*", "{p}"), ("plain", "plain")]
)
async def test_tags(tmp_path, tag, expected):
    rig = Rig(tmp_path, "read_from_head true")
    rig.text = rig.text.replace("tag t", f"tag {tag}")
    write(rig.log, "x")
    await rig.start()
    assert rig.events[0][0] == expected.format(p=str(rig.log).strip("/").replace("/", "."))
    await rig.stop()


async def test_path_key_does_not_hide_a_field(tmp_path):
    rig = Rig(tmp_path, "read_from_head true\npath_key p", parse="<parse>\n@type json\n</parse>")
    write(rig.log, '{"a":1}', '{"p":"mine"}', '{"p":null}')
    await rig.start()
    assert [record["p"] for _tag, record in rig.events] == [str(rig.log), "mine", str(rig.log)]
    await rig.stop()


async def test_unmatched_lines_are_emitted_in_their_place_and_logged_at_a_bounded_rate(tmp_path, caplog):
    parse = "emit_unmatched_lines true\n<parse>\n@type json\n</parse>"
    rig = Rig(tmp_path, "read_from_head true", parse=parse)
    write(rig.log, '{"a":1}', "no", '{"a":2}', '{"a":3,"time":"x"}', *["bad"] * 5000)
    await rig.start()
    records = [record for _tag, record in rig.events]
    assert records[:3] == [{"a": 1}, {"unmatched_line": "no"}, {"a": 2}]
    assert records[3:] == [{"unmatched_line": "bad"}] * 5000
    assert rig.stats["unmatched"] == 5002
    assert sum("pattern not matched" in record.message for record in caplog.records) <= 3
    assert sum("invalid line found" in record.message for record in caplog.records) == 1
    await rig.stop()


async def test_unmatched_lines_are_left_out_and_passed_by(tmp_path):
    rig = Rig(tmp_path, "read_from_head true", parse="<parse>\n@type json\n</parse>")
    write(rig.log, *["bad"] * 10)
    await rig.start()
    assert rig.events == []
    assert rig.positions() == {"x.log": 40}
    await rig.stop()


async def test_line_ends_of_windows(tmp_path):
    rig = Rig(tmp_path, "read_from_head true")
    write(rig.log, "one", "two\r", end="\r\n")
    await rig.start()
    assert rig.lines == ["one", "two\r"]
    write(rig.log, "three\r", end="")
    await rig.elapse()
    write(rig.log, "", "four")
    await rig.elapse()
    assert rig.lines[2:] == ["three", "four"]
    await rig.stop()


async def test_encodings(tmp_path):
    rig = Rig(tmp_path, "read_from_head true\nfrom_encoding UTF-16LE\nencoding UTF-8")
    rig.log.write_bytes("grüße\r\n\u0a0a ☃\n".encode("utf-16-le"))
    await rig.start()
    assert rig.lines == ["grüße", "\u0a0a ☃"]
    assert rig.positions() == {"x.log": 22}
    await rig.stop()
    rig = Rig(tmp_path / "b", "read_from_head true\nfrom_encoding cp932\nencoding utf-8")
    rig.folder.mkdir()
    rig.log.write_bytes("日本\n語\n".encode("cp932"))
    await rig.start()
    assert rig.lines == ["日本", "語"]
    await rig.stop()


async def test_bytes_that_are_no_text_are_kept(tmp_path):
    rig = Rig(tmp_path, "read_from_head true")
    rig.log.write_bytes(b"\xff\xfe\x00\n")
    await rig.start()
    assert rig.lines == ["\udcff\udcfe\x00"]
    await rig.stop()


async def test_long_lines_are_left_out(tmp_path, caplog):
    rig = Rig(tmp_path, "read_from_head true\nmax_line_size 10")
    write(rig.log, "short", "x" * 10, "y" * 100_000, "end")
    await rig.start()
    assert rig.lines == ["short", "end"]
    assert rig.positions() == {"x.log": rig.log.stat().st_size}
    assert any("received line length is longer than 10" in record.message for record in caplog.records)
    write(rig.log, "z" * 1000, end="")
    await rig.elapse()
    await rig.stop()
    write(rig.log, "", "next")
    await rig.start()
    assert rig.lines == ["short", "end", "next"]
    await rig.stop()


async def test_a_batch_has_read_lines_limit_lines(tmp_path):
    sizes = []

    class Sizes(Direct):
        name = "sizes"

        def process(self, tag, batch):
            sizes.append(batch.count)
            super().process(tag, batch)

    rig = Rig(tmp_path, "read_from_head true\nread_lines_limit 7", output="sizes", plugins=[Sizes])
    rig.now = lambda: [(tag, record) for tag, _time, record in rig.kit.of(Sizes).events]
    write(rig.log, *map(str, range(20)))
    await rig.start()
    assert sizes == [7, 7, 6]
    assert rig.lines == [str(number) for number in range(20)]
    await rig.stop()


async def test_a_damaged_position_file_is_told_by_line(tmp_path, caplog):
    rig = Rig(tmp_path)
    rig.pos.parent.mkdir()
    rig.pos.write_text("nonsense\n")
    write(rig.log, "x")
    await rig.start()
    assert any(record.message.startswith(f"{rig.pos}:1 is no position") for record in caplog.records)
    await rig.stop()


async def test_files_that_cannot_be_read_are_told_once(tmp_path, caplog, monkeypatch):
    write(tmp_path / "a.log", "x")
    rig = Rig(tmp_path, "ignore_repeated_permission_error true\nrefresh_interval 1", path="{folder}/*.log")
    monkeypatch.setattr("headrace.plugins.in_tail.planner.os.access", lambda *_, **__: False)
    await rig.start(5)
    assert sum("unreadable" in record.message for record in caplog.records) == 1
    await rig.stop()


def test_each_documented_parameter_is_there():
    documented = """tag path path_timezone glob_policy exclude_path follow_inodes refresh_interval limit_recently_modified
    skip_refresh_on_startup read_from_head encoding from_encoding read_lines_limit read_bytes_limit_per_second
    max_line_size multiline_flush_interval pos_file pos_file_compaction_interval parse path_key rotate_wait
    enable_watch_timer enable_stat_watcher open_on_every_update emit_unmatched_lines ignore_repeated_permission_error
    path_delimiter group @log_level @label"""
    assert set(documented.split()) <= {item.key for item in declared(TailInput)}
