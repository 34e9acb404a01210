"""Storage local: what is kept, when, and who has the file."""

import json
import os

import pytest

from headrace.pipeline.context import Settings
from headrace.plugins.storage_local import LocalStorage
from headrace.testing.pipelines import Direct, Kit, settle

TEXT = """
<source>
  @type sample
  @id me
  tag t
  auto_increment_key n
  {lines}
</source>
<match **>
  @type direct
</match>
"""


def kit(*lines, **settings):
    return Kit(TEXT.format(lines="\n  ".join(lines)), settings=Settings(**settings))


def numbers(made):
    return [record["n"] for _, _, record in made.of(Direct).events]


async def run(seconds, *lines, **settings):
    made = await kit(*lines, **settings).start()
    await made.clock.elapse(seconds)
    await made.stop()
    return made


async def test_the_counter_goes_on_where_it_was(tmp_path):
    lines = ("<storage>", "@type local", f"path {tmp_path}/deep/counter.json", "</storage>")
    assert numbers(await run(2.5, *lines)) == [0, 1, 2]
    assert json.loads((tmp_path / "deep" / "counter.json").read_text()) == {"auto_increment_value": 2}
    assert numbers(await run(1.5, *lines)) == [3, 4]
    assert sorted(os.listdir(tmp_path / "deep")) == ["counter.json", "counter.json.lock"]


async def test_a_file_that_fluentd_has_written(tmp_path):
    file = tmp_path / "s.json"
    file.write_text('{"increment_value":0,"dummy_index":0,"auto_increment_value":41}')
    assert numbers(await run(1.5, "<storage>", f"path {file}", "</storage>")) == [42, 43]
    assert json.loads(file.read_text()) == {"increment_value": 0, "dummy_index": 0, "auto_increment_value": 43}


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([], "root/worker0/me/storage.suspend.json"),
        (["<storage mine>", "</storage>"], "root/worker0/me/storage.mine.json"),
        (["<storage>", "path {tmp}/folder", "</storage>"], "folder/worker0/storage.json"),
    ],
)
async def test_where_the_file_is(tmp_path, lines, where):
    await run(0.5, *(line.format(tmp=tmp_path) for line in lines), root_dir=str(tmp_path / "root"))
    assert (tmp_path / where).exists()


async def test_modes_and_pretty_print(tmp_path):
    lines = ("<storage>", f"path {tmp_path}/d/s.json", "mode 0600", "dir_mode 0700", "pretty_print true", "</storage>")
    await run(0.5, *lines)
    assert (tmp_path / "d/s.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d/s.json").read_text() == '{\n  "auto_increment_value": 0\n}'


async def test_autosave_writes_only_what_changed(tmp_path):
    lines = ("<storage>", f"path {tmp_path}/s.json", "autosave_interval 2s", "save_at_shutdown false", "</storage>")
    made = await kit("rate 1", *lines).start()
    storage = made.of(LocalStorage)
    await made.clock.elapse(1.9)
    assert storage.stats() == {"saved": 0, "failed": 0}
    await made.clock.elapse(0.3)
    assert storage.stats() == {"saved": 1, "failed": 0}
    await made.of(type(made.pipeline.plugins[-1])).stop()
    before = numbers(made)[-1]
    await made.stop()
    assert json.loads((tmp_path / "s.json").read_text())["auto_increment_value"] <= before


async def test_a_persistent_one_is_saved_at_every_change(tmp_path):
    made = await kit("<storage>", f"path {tmp_path}/s.json", "persistent true", "</storage>").start()
    await made.clock.elapse(1.5)
    assert json.loads((tmp_path / "s.json").read_text()) == {"auto_increment_value": 1}
    await made.stop()


async def test_the_next_process_waits_until_the_last_one_has_let_go(tmp_path):
    lines = ("<storage>", f"path {tmp_path}/s.json", "</storage>")
    old = await kit(*lines).start()
    await old.clock.elapse(1.5)
    new = await kit(*lines).start()
    await new.clock.elapse(3)
    assert numbers(new) == []
    await old.stop()
    await new.clock.elapse(1.5)
    await settle()
    assert numbers(old) + numbers(new) == [0, 1, 2, 3]
    await new.stop()


async def test_values_of_every_kind(tmp_path):
    made = await kit("<storage>", f"path {tmp_path}/s.json", "</storage>").start()
    storage = made.of(LocalStorage)
    storage.put("text", "grüße \udcff")
    storage.put("deep", {"a": [1, None]})
    assert storage.update("text", lambda old: old + "!") == "grüße \udcff!"
    assert storage.delete("deep") == {"a": [1, None]}
    assert storage.get("deep") is None
    assert storage.get("deep", 5) == 5
    assert storage.save()
    storage.load()
    assert storage.get("text") == "grüße �!"
    await made.stop()


async def test_a_disk_that_refuses_costs_nothing_but_a_line(tmp_path, caplog):
    made = await kit("<storage>", f"path {tmp_path}/d/s.json", "</storage>").start()
    await made.clock.elapse(0.5)
    (tmp_path / "d" / "s.json").mkdir()
    await made.stop()
    assert "cannot be saved" in caplog.text
    assert made.of(LocalStorage).stats()["failed"] == 1


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        (["<storage>", "path {tmp}/bad.json", "</storage>"], {}, "cannot be used: invalid JSON"),
        (["<storage>", "path {tmp}/list.json", "</storage>"], {}, "it holds no JSON object"),
        (["<storage>", "path {tmp}/bad.json/x.json", "</storage>"], {}, "is no folder"),
        (["<storage>", "persistent true", "</storage>"], {}, "a persistent storage has no path"),
        (["<storage 1bad>", "</storage>"], {}, "<storage 1bad>"),
        (["<storage>", "mode 0abc", "</storage>"], {}, '"mode" must be octal'),
        (["<storage>", "autosave_interval 0", "</storage>"], {}, '"autosave_interval" must be above 0'),
        (["<storage>", "@type redis", "</storage>"], {}, 'unknown storage plugin "redis"'),
        (["<storage>", "path {tmp}/s.json", "</storage>"], {"workers": 2}, "2 workers cannot share"),
    ],
)
def test_what_is_refused(tmp_path, lines, settings, message):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    errors = kit(*(line.format(tmp=tmp_path) for line in lines), **settings).errors
    assert any(message in error for error in errors), errors


def test_two_plugins_do_not_share_a_file(tmp_path):
    text = TEXT.format(lines=f"<storage>\npath {tmp_path}/s.json\n</storage>")
    errors = Kit(text + text.replace("@id me", "@id you")).errors
    assert any("is already that of" in error for error in errors), errors


def test_a_worker_section_may_have_a_file_of_its_own(tmp_path):
    source, rest = TEXT.format(lines=f"<storage>\npath {tmp_path}/s.json\n</storage>").split("<match")
    made = Kit(f"<system>\nworkers 2\n</system>\n<worker 0>{source}</worker>\n<match{rest}")
    assert made.errors == []


async def test_an_empty_file_is_no_fault(tmp_path):
    (tmp_path / "s.json").write_text("")
    assert numbers(await run(0.5, "<storage>", f"path {tmp_path}/s.json", "</storage>")) == [0]
