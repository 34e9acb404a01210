"""Files that grow, rotate, shrink, come and go: every line once."""

import asyncio
import os

import pytest
from tail_rig import Gate, Rig, numbers, write

from headrace.plugins.in_tail import watch
from headrace.plugins.in_tail.keeper import FileKeeper
from headrace.testing.clock import settle
from headrace.testing.contracts import check_source
from headrace.testing.pipelines import Direct

BOTH = pytest.mark.parametrize("follow", ["follow_inodes true", ""])
WATCHERS = pytest.mark.parametrize(
    "watcher", ["", "enable_stat_watcher false", "enable_watch_timer false", "open_on_every_update true"]
)


async def test_it_begins_at_the_end_and_goes_on_where_it_was(tmp_path):
    rig = Rig(tmp_path)
    write(rig.log, "before")
    await rig.start()
    write(rig.log, "one", "two")
    await rig.elapse()
    assert rig.lines == ["one", "two"]
    assert rig.positions() == {"x.log": os.stat(rig.log).st_size}
    await rig.stop()
    write(rig.log, "three")
    await rig.start()
    assert rig.lines == ["one", "two", "three"]
    await rig.stop()


@WATCHERS
async def test_new_files_are_read_from_the_head(tmp_path, watcher):
    rig = Rig(tmp_path, f"refresh_interval 1\n{watcher}", path="{folder}/*.log")
    await rig.start()
    write(rig.log, "one")
    await rig.elapse(1.5)
    write(rig.log, "two")
    await rig.elapse(1.5)
    assert rig.lines == ["one", "two"]
    await rig.stop()


async def test_an_unfinished_line_waits_for_its_end(tmp_path):
    rig = await Rig(tmp_path, "read_from_head true").start()
    write(rig.log, "a", "b", end="")
    await rig.elapse()
    assert rig.lines == []
    await rig.stop()
    await rig.start()
    write(rig.log, "c", "d")
    await rig.elapse()
    assert rig.lines == ["abc", "d"]
    await rig.stop()


@BOTH
@pytest.mark.parametrize("watcher", ["", "enable_stat_watcher false"])
async def test_f28_the_gap_between_rename_and_create(tmp_path, follow, watcher):
    rig = await Rig(tmp_path, f"refresh_interval 0.5\nrotate_wait 2\n{follow}\n{watcher}").start()
    at = 0
    write(rig.log)
    await rig.elapse(1.2)
    for _round in range(20):
        write(rig.log, *numbers(at, 100))
        await rig.elapse(1.2)
        os.rename(rig.log, tmp_path / "x.log.1")
        await rig.elapse(1.1)  # two refreshes
        write(tmp_path / "x.log.1", *numbers(at + 100, 5))
        await rig.elapse(0.2)
        write(rig.log, *numbers(at + 105, 100))
        await rig.elapse(1.2)
        at += 205
    assert rig.lines == numbers(0, at)
    assert rig.stats["rotated_file_count"] == 20
    await rig.elapse(5)
    assert rig.stats["tracked_file_count"] == 1
    await rig.stop()
    assert rig.pos.read_bytes().count(b"\n") <= (2 if not follow else 22)


@BOTH
async def test_f29_a_rotated_file_that_the_pattern_matches_too(tmp_path, follow):
    rig = await Rig(tmp_path, f"refresh_interval 1\nrotate_wait 1\n{follow}", path="{folder}/x.log*").start()
    for number in range(10):
        write(rig.log, *numbers(number * 10, 10))
        await rig.elapse(0.4)
        for old in range(number, 0, -1):
            os.rename(f"{rig.log}.{old}", f"{rig.log}.{old + 1}")
        os.rename(rig.log, f"{rig.log}.1")
        await rig.elapse(1.5)
    write(f"{rig.log}.1", "late")
    await rig.elapse(2)
    assert rig.lines == [*numbers(0, 100), "late"]
    assert rig.stats["tracked_file_count"] == 10
    await rig.stop()
    await rig.start(3)
    assert len(rig.lines) == 101, "nor after a restart"
    await rig.stop()


@BOTH
async def test_the_rest_of_a_file_that_was_rotated_while_nobody_looked(tmp_path, follow):
    rig = Rig(tmp_path, follow)
    write(rig.log)
    await rig.start()
    write(rig.log, *numbers(0, 10))
    await rig.elapse()
    await rig.stop()
    write(rig.log, *numbers(10, 10))
    os.rename(rig.log, tmp_path / "x.log.1")
    write(rig.log, *numbers(20, 10))
    await rig.start()
    assert rig.lines == numbers(0, 30)
    await rig.elapse(10)
    await rig.stop()
    await rig.start()
    assert rig.lines == numbers(0, 30)
    await rig.stop()


async def test_another_file_with_the_inode_of_a_removed_one_is_not_read(tmp_path):
    rig = Rig(tmp_path)
    write(rig.log, *numbers(0, 10))
    inode = os.stat(rig.log).st_ino
    rig.pos.parent.mkdir()
    rig.pos.write_text(f"{rig.log}\t{5:016x}\t{inode:016x}\n")
    os.rename(rig.log, tmp_path / "x.log.1")  # offset 5 is in the middle of a line: it was another file
    write(rig.log, "new")
    await rig.start()
    assert rig.lines == ["new"]
    await rig.stop()


async def test_a_rotated_file_is_read_to_its_end_after_a_kill(tmp_path):
    rig = Rig(tmp_path, "read_lines_limit 1\nread_bytes_limit_per_second 8192\nread_from_head true")
    write(rig.log, *[f"{number:04d}" + "x" * 1020 for number in range(20)])
    await rig.start(0.3)
    os.rename(rig.log, tmp_path / "x.log.1")
    write(rig.log, *[f"{number:04d}" + "x" * 1020 for number in range(20, 30)])
    await rig.elapse(0.3)
    assert len(rig.lines) == 7
    assert len(rig.pos.read_text().splitlines()) == 2
    await rig.kill()
    await rig.start(8)
    assert [line[:4] for line in rig.lines] == [f"{number:04d}" for number in range(30)]
    await rig.stop()


@WATCHERS
async def test_f32_copytruncate(tmp_path, watcher):
    rig = Rig(tmp_path, watcher)
    write(rig.log)
    await rig.start()
    for number in range(10):
        write(rig.log, *numbers(number * 5, 5))
        await rig.elapse(1.2)
        os.truncate(rig.log, 0)
        if number % 2:
            await rig.elapse(1.2)
    write(rig.log, "end")
    await rig.elapse(1.2)
    assert rig.lines == [*numbers(0, 50), "end"]
    assert rig.stats["truncated"] == 10
    assert rig.stats["suspected_losses"] == 0
    await rig.stop()


async def test_a_file_that_was_truncated_and_has_grown_past_the_old_place(tmp_path):
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start()
    write(rig.log, "short")
    await rig.elapse()
    write(rig.log, *numbers(0, 10), mode="w")
    await rig.elapse()
    assert rig.lines == ["short", *numbers(0, 10)]
    await rig.stop()


async def test_an_unread_rest_of_a_truncated_file_is_a_suspected_loss(tmp_path):
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start()
    write(rig.log, "unfinished", end="")
    await rig.elapse()
    os.truncate(rig.log, 0)
    await rig.elapse()
    assert rig.stats["suspected_losses"] == 1
    await rig.stop()


async def test_a_removed_file_is_read_out_and_forgotten(tmp_path):
    rig = Rig(tmp_path, "rotate_wait 1")
    write(rig.log)
    await rig.start()
    write(rig.log, "one", "two without an end"[:3], end="\n")
    write(rig.log, "last", end="")
    os.unlink(rig.log)
    await rig.elapse(3)
    assert rig.lines == ["one", "two", "last"]
    assert rig.positions() == {}
    assert rig.stats["open_files"] == 0
    write(rig.log, "again")
    await rig.elapse()
    assert rig.lines[-1] == "again"
    await rig.stop()


async def test_a_file_that_goes_away_and_comes_back_is_the_same(tmp_path):
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start()
    write(rig.log, "one")
    await rig.elapse()
    os.rename(rig.log, tmp_path / "away")
    await rig.elapse()
    write(tmp_path / "away", "two")
    os.rename(tmp_path / "away", rig.log)
    await rig.elapse()
    write(rig.log, "three")
    await rig.elapse(10)
    assert rig.lines == ["one", "two", "three"]
    assert rig.positions() == {"x.log": 14}
    await rig.stop()


async def test_f33_a_busy_file_does_not_starve_quiet_ones(tmp_path):
    rig = Rig(tmp_path, "read_from_head true\nrefresh_interval 1", path="{folder}/*.log")
    write(tmp_path / "busy.log", *numbers(0, 60_000))
    for number in range(5):
        write(tmp_path / f"quiet{number}.log", "quiet")
    await rig.start(0)
    await settle(3000)
    order = rig.lines
    assert len(order) == 60_005
    last = max(index for index, line in enumerate(order) if line == "quiet")
    assert last <= 5 + 1000, "after one turn of the busy file each quiet one had its turn"
    for number in range(5):
        write(tmp_path / f"quiet{number}.log", "again")
    os.rename(tmp_path / "busy.log", tmp_path / "busy.1")
    write(tmp_path / "busy.log", *numbers(60_000, 20_000))
    await rig.elapse(1)
    order = rig.lines[60_005:]
    last = max(index for index, line in enumerate(order) if line == "again")
    assert len(order) == 20_005
    assert last <= 5 + 2000, "a rotation gives no second share"
    await rig.stop()


async def test_the_limit_of_bytes_outlives_a_rotation(tmp_path):
    rig = Rig(tmp_path, "read_from_head true\nread_bytes_limit_per_second 8192")
    write(rig.log, *["x" * 1023] * 8)
    await rig.start(0.2)
    assert len(rig.lines) == 8
    os.rename(rig.log, tmp_path / "x.log.1")
    write(rig.log, *["y" * 1023] * 16)
    await rig.elapse(0.3)
    assert len(rig.lines) == 8
    await rig.elapse(1)
    assert len(rig.lines) == 16
    assert rig.stats["throttled_log_count"] > 0
    await rig.elapse(1.2)
    assert len(rig.lines) == 24
    await rig.stop()


async def test_groups_limit_lines(tmp_path):
    group = f"""read_from_head true
<group>
pattern /^{str(tmp_path).replace("/", "[/]")}.(?<name>[a-z]+)\\.log$/
rate_period 10s
<rule>
match {{"name": "/^a/"}}
limit 10
</rule>
<rule>
match {{"name": "/none/"}}
limit 0
</rule>
</group>"""
    rig = Rig(tmp_path, group, path="{folder}/*.log", parse="path_key p\n<parse>\n@type none\n</parse>")
    for name in ("aa", "ab", "b", "none"):
        write(tmp_path / f"{name}.log", *numbers(0, 20))
    await rig.start(1)

    def counts():
        found = {}
        for _tag, record in rig.events:
            name = os.path.basename(record["p"])
            found[name] = found.get(name, 0) + 1
        return found

    assert counts() == {"aa.log": 5, "ab.log": 5, "b.log": 20}
    await rig.elapse(10)
    assert counts() == {"aa.log": 10, "ab.log": 10, "b.log": 20}
    await rig.stop()


async def test_a_full_buffer_holds_the_file_and_loses_nothing(tmp_path, caplog):
    rig = Rig(tmp_path, "read_from_head true", output="gate", plugins=[Gate])
    write(rig.log, *numbers(0, 2500))
    rig.now = lambda: [(tag, record) for tag, _time, record in rig.kit.of(Gate).events]
    await rig.start(0, prepare=lambda kit: setattr(kit.of(Gate), "room", 1))
    gate = rig.kit.of(Gate)
    await rig.elapse(60)
    assert len(gate.events) == 1000
    assert gate.offers < 40, "it backs off"
    assert len(caplog.records) < 20
    assert rig.positions() == {"x.log": 12_000}
    gate.room = 99
    await rig.elapse(6)
    assert rig.lines == numbers(0, 2500)
    assert rig.positions() == {"x.log": 2500 * 12}
    await rig.stop()


async def test_a_position_is_not_saved_before_the_batch_is_taken(tmp_path):
    rig = Rig(tmp_path, "read_from_head true", output="gate", plugins=[Gate])
    write(rig.log, *numbers(0, 2500))
    rig.now = lambda: [(tag, record) for tag, _time, record in rig.kit.of(Gate).events]
    waiting = asyncio.get_running_loop().create_future()
    await rig.start(3, prepare=lambda kit: setattr(kit.of(Gate), "waiting", waiting))
    gate = rig.kit.of(Gate)
    assert len(gate.events) == 1000, "one batch of a file is under way at most"
    assert rig.positions() == {"x.log": 0}
    gate.waiting = None
    waiting.set_result(None)
    await rig.elapse(3)
    assert rig.positions() == {"x.log": 2500 * 12}
    assert rig.lines == numbers(0, 2500)
    await rig.stop()


async def test_a_batch_that_is_never_taken_is_read_again_after_a_stop(tmp_path):
    rig = Rig(tmp_path, "read_from_head true", output="gate", plugins=[Gate])
    write(rig.log, *numbers(0, 10))
    rig.now = lambda: [(tag, record) for tag, _time, record in rig.kit.of(Gate).events]
    waiting = asyncio.get_running_loop().create_future()
    await rig.start(3, prepare=lambda kit: setattr(kit.of(Gate), "waiting", waiting))
    await rig.kit.stop(60)
    assert waiting.cancelled()
    assert rig.positions() == {"x.log": 0}


async def test_a_delivery_that_is_late_is_not_repeated(tmp_path):
    rig = Rig(tmp_path, "read_from_head true\nack_mode delivery\nack_deadline 2s", output="script")
    rig.now = lambda: [("t", record) for record in rig.kit.script.got]
    write(rig.log, "one")
    wait = asyncio.get_running_loop().create_future()
    await rig.start(1, prepare=lambda kit: kit.script.answers.append(wait))
    assert rig.positions() == {"x.log": 0}
    await rig.elapse(10)
    wait.set_result(None)
    await rig.elapse(10)
    assert rig.lines == ["one"]
    assert rig.positions() == {"x.log": 4}
    await rig.stop()


async def test_more_files_than_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.plugins.in_tail.input.limit", lambda: 8)
    rig = Rig(tmp_path, "read_from_head true\nrefresh_interval 1", path="{folder}/*.log")
    for number in range(100):
        write(tmp_path / f"{number}.log", "one")
    await rig.start(1)
    assert rig.stats["open_files"] <= 8
    for number in range(100):
        write(tmp_path / f"{number}.log", "two")
    await rig.elapse(1)
    for number in range(20):
        os.rename(tmp_path / f"{number}.log", tmp_path / f"{number}.old")
        write(tmp_path / f"{number}.old", "three")
        write(tmp_path / f"{number}.log", "four")
    await rig.elapse(2)
    assert sorted(rig.lines) == sorted(["one"] * 100 + ["two"] * 100 + ["three"] * 20 + ["four"] * 20)
    await rig.elapse(10)
    assert rig.stats["open_files"] <= 8
    await rig.stop()


async def test_all_files_rotate_at_once_with_few_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.plugins.in_tail.input.limit", lambda: 8)
    rig = Rig(tmp_path, "read_from_head true\nrefresh_interval 1", path="{folder}/*.log")
    for number in range(100):
        write(tmp_path / f"{number}.log", "one")
    await rig.start(1)
    most = 0
    for turn in range(3):
        for number in range(100):
            os.rename(tmp_path / f"{number}.log", tmp_path / f"{number}.log.{turn}")
            write(tmp_path / f"{number}.log.{turn}", "late")
            write(tmp_path / f"{number}.log", "new")
        for _ in range(20):
            await rig.elapse(0.1)
            most = max(most, rig.stats["open_files"])
    assert sorted(rig.lines) == ["late"] * 300 + ["new"] * 300 + ["one"] * 100
    assert most <= 9
    await rig.elapse(10)
    assert rig.stats["tracked_file_count"] == 100
    assert rig.stats["suspected_losses"] == 0
    await rig.stop()


async def test_idle_files_cost_no_turns(tmp_path):
    rig = Rig(tmp_path, "refresh_interval 100", path="{folder}/*.log")
    for number in range(1000):
        write(tmp_path / f"{number}.log")
    await rig.start(5)
    before = rig.stats
    await rig.elapse(10)
    after = rig.stats
    assert after["turns"] == before["turns"]
    assert after["looked"] - before["looked"] <= 2000, "200 looks a second, however many files there are"
    write(tmp_path / "7.log", "x")
    await rig.elapse(0.1)
    assert rig.lines == ["x"]
    assert rig.stats["turns"] - after["turns"] <= 2
    await rig.stop()


async def test_without_inotify_each_file_is_looked_at_every_second(tmp_path):
    rig = Rig(tmp_path, "enable_stat_watcher false", path="{folder}/*.log")
    for number in range(300):
        write(tmp_path / f"{number}.log")
    await rig.start(2)
    before = rig.stats["looked"]
    await rig.elapse(10)
    assert 2900 <= rig.stats["looked"] - before <= 3100
    await rig.stop()


async def test_where_inotify_is_silent_files_are_polled(tmp_path, monkeypatch):
    monkeypatch.setattr(watch.Inotify, "read", lambda self: [])
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start(2)
    for number in range(6):
        write(rig.log, str(number))
        await rig.elapse(1.5)
    assert rig.lines == list("012345")
    assert rig.stats["polled_files"] == 1
    await rig.stop()


async def test_when_watches_are_used_up_files_are_polled(tmp_path, monkeypatch, caplog):
    def full(self, *_rest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watch.Inotify, "_watch", full)
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start(2)
    write(rig.log, "one")
    await rig.elapse(1.5)
    assert rig.lines == ["one"]
    assert sum("max_user_watches" in record.message for record in caplog.records) == 1
    await rig.stop()


async def test_lost_events_are_made_up_for(tmp_path, monkeypatch):
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start(1)
    real = watch.Inotify.read
    monkeypatch.setattr(watch.Inotify, "read", lambda self: [(-1, watch.OVERFLOW, b"")] if real(self) else [])
    write(rig.log, "one")
    await rig.elapse(0.1)
    assert rig.lines == ["one"]
    await rig.stop()


async def test_stop_without_positions_reads_what_is_there(tmp_path):
    rig = Rig(tmp_path, "enable_stat_watcher false", pos=False)
    write(rig.log)
    await rig.start(1.5)
    write(rig.log, *numbers(0, 3000))
    await rig.stop()
    assert rig.lines == numbers(0, 3000)


async def test_two_generations_every_line_once(tmp_path):
    old, new = Rig(tmp_path), Rig(tmp_path)
    write(old.log, *numbers(0, 5))
    await old.start()
    write(old.log, *numbers(5, 5))
    await old.elapse()
    await new.start()
    assert new.stats["waits_for_positions"]
    write(old.log, *numbers(10, 5))
    await old.elapse()
    await new.elapse()
    assert new.lines == []
    await old.stop()
    write(old.log, *numbers(15, 5))
    await new.elapse()
    assert old.before == [("t", {"message": line}) for line in numbers(5, 10)]
    assert new.lines == numbers(15, 5)
    await new.stop()


async def test_a_file_that_is_new_between_two_generations_is_read_from_its_head(tmp_path):
    old, new = (Rig(tmp_path, path="{folder}/*.log") for _ in range(2))
    write(old.log, "x")
    await old.start()
    write(tmp_path / "unwatched.txt", "y")
    await new.start()
    await old.stop()
    write(tmp_path / "fresh.log", "one")
    await new.elapse()
    assert new.lines == ["one"]
    await new.stop()


async def test_positions_are_compacted(tmp_path):
    rig = Rig(tmp_path, "pos_file_compaction_interval 20s\nrefresh_interval 1\nrotate_wait 1", path="{folder}/*.log")
    await rig.start()
    for number in range(10):
        write(tmp_path / f"{number}.log", "x")
    await rig.elapse(2)
    for number in range(9):
        os.unlink(tmp_path / f"{number}.log")
    await rig.elapse(5)
    assert rig.pos.read_bytes().count(b"\n") == 10
    await rig.elapse(20)
    for _ in range(200):
        if rig.stats["compactions"]:
            break
        await asyncio.sleep(0.01)  # fsync runs in a thread
    assert rig.pos.read_bytes().count(b"\n") == 1
    write(tmp_path / "9.log", "y")
    await rig.elapse()
    assert rig.positions() == {"9.log": 4}
    await rig.stop()


async def test_old_files_of_a_pattern_are_taken_when_they_change(tmp_path):
    rig = Rig(tmp_path, "limit_recently_modified 1h\nread_from_head true\nrefresh_interval 1", path="{folder}/*.log")
    now = 1_700_000_000
    for name, age in (("old.log", 7200), ("new.log", 60)):
        write(tmp_path / name, name)
        os.utime(tmp_path / name, (now - age, now - age))
    await rig.start(2)
    assert rig.lines == ["new.log"]
    write(tmp_path / "old.log", "more")
    os.utime(tmp_path / "old.log", (now, now))
    await rig.elapse(2)
    assert rig.lines == ["new.log", "old.log", "more"]
    os.utime(tmp_path / "old.log", (now - 7200, now - 7200))
    await rig.elapse(10)
    write(tmp_path / "old.log", "still")
    await rig.elapse(2)
    assert rig.lines[3:] == ["still"]
    await rig.stop()


async def test_skip_refresh_on_startup(tmp_path):
    rig = Rig(tmp_path, "skip_refresh_on_startup true\nread_from_head true\nrefresh_interval 5")
    write(rig.log, "one")
    await rig.start(4)
    assert rig.lines == []
    await rig.elapse(2)
    assert rig.lines == ["one"]
    await rig.stop()


async def test_a_path_with_a_date_moves_on(tmp_path):
    path = "{folder}/%Y%m%d-%H%M.log"
    rig = Rig(tmp_path, "path_timezone +00:00\nrefresh_interval 1\nrotate_wait 2", path=path)
    await rig.start()  # the clock begins at 2023-11-14 22:13:20
    write(tmp_path / "20231114-2213.log", "one")
    await rig.elapse(1.5)
    write(tmp_path / "20231114-2214.log", "two")
    await rig.elapse(45)
    write(tmp_path / "20231114-2213.log", "too late")
    await rig.elapse(2)
    assert rig.lines == ["one", "two"]
    assert rig.stats["tracked_file_count"] == 1
    await rig.stop()


async def test_links_of_containers(tmp_path):
    """As in Kubernetes: the name is a link, the link is set to a new file."""
    pods = tmp_path / "pods"
    pods.mkdir()
    rig = Rig(tmp_path, "refresh_interval 1\nread_from_head true", path="{folder}/*.log")
    write(pods / "0", *numbers(0, 5))
    os.symlink(pods / "0", rig.log)
    await rig.start()
    write(pods / "0", *numbers(5, 5))
    await rig.elapse()
    write(pods / "1", *numbers(10, 5))
    os.symlink(pods / "1", tmp_path / "new")
    os.rename(tmp_path / "new", rig.log)
    await rig.elapse(1.5)
    assert rig.lines == numbers(0, 15)
    await rig.stop()


async def test_an_output_that_fails_does_not_stop_the_file(tmp_path, caplog):
    rig = await Rig(tmp_path, "read_from_head true").start()
    rig.kit.of(Direct).error = RuntimeError("no")
    write(rig.log, "one")
    await rig.elapse()
    rig.kit.of(Direct).error = None
    write(rig.log, "two")
    await rig.elapse()
    assert rig.lines == ["two"]
    assert rig.stats["failed"] == 1
    await rig.stop()


async def test_a_rotated_file_that_is_never_read_is_let_go(tmp_path):
    pattern = 'pattern /^(?<a>.*)$/\n<rule>\nmatch {"a": "/./"}\nlimit 0\n</rule>'
    rig = Rig(tmp_path, f"read_from_head true\nrotate_wait 1\n<group>\n{pattern}\n</group>")
    write(rig.log, "x")
    await rig.start(1)
    for number in range(5):
        os.rename(rig.log, tmp_path / f"x.{number}")
        write(rig.log, "x")
        await rig.elapse(6)
    assert rig.lines == []
    assert rig.stats["tracked_file_count"] == 1
    await rig.stop()


async def test_an_old_file_that_is_renamed_lets_the_new_one_go_on(tmp_path):
    """The new file waits for the old one, which then turns out to have only another name."""
    rig = Rig(tmp_path, "read_from_head true\nread_bytes_limit_per_second 8192\nrefresh_interval 1", path="{folder}/x*")
    write(rig.log, *["x" * 1023] * 20)
    await rig.start(0.2)
    os.rename(rig.log, tmp_path / "x.log.1")
    write(rig.log, "new")
    await rig.elapse(10)
    assert len(rig.lines) == 21
    assert rig.lines[-1] == "new"
    await rig.stop()


async def test_links_whose_files_are_renamed_where_they_lie(tmp_path, monkeypatch):
    """As kubelet does it; the file was closed for lack of descriptors."""
    monkeypatch.setattr("headrace.plugins.in_tail.input.limit", lambda: 1)
    pods = tmp_path / "pods"
    pods.mkdir()
    rig = Rig(tmp_path, "refresh_interval 1\nread_from_head true\nopen_on_every_update true", path="{folder}/*.log")
    write(pods / "0.log", *numbers(0, 5))
    os.symlink(pods / "0.log", rig.log)
    await rig.start()
    write(pods / "0.log", *numbers(5, 5))
    os.rename(pods / "0.log", pods / "0.log.20240101")
    write(pods / "0.log", *numbers(10, 5))
    await rig.elapse(1.5)
    assert rig.lines == numbers(0, 15)
    await rig.stop()
    write(pods / "0.log", *numbers(15, 5))
    os.rename(pods / "0.log", pods / "0.log.20240102")
    write(pods / "0.log", *numbers(20, 5))
    await rig.start(1)
    assert rig.lines == numbers(0, 25)
    await rig.stop()


@pytest.mark.parametrize("pos", [True, False])
async def test_it_holds_to_the_contract_of_sources(tmp_path, pos):
    for number in range(3):
        write(tmp_path / f"{number}.log", "x")
    rig = Rig(tmp_path, "read_from_head true", path="{folder}/*.log", pos=pos)
    source, _rest = rig.text.split("<match")
    await check_source(source)


async def test_a_stop_while_it_waits_for_the_files(tmp_path):
    old, new = Rig(tmp_path), Rig(tmp_path)
    await old.start()
    await new.start()
    await new.stop()
    write(old.log, "one")
    await old.elapse()
    assert old.lines == ["one"]
    await old.stop()


async def test_a_search_that_fails_is_not_the_last_one(tmp_path, monkeypatch, caplog):
    real, fail = FileKeeper.search, [True, False, True]

    async def search(self):
        if fail and fail.pop():
            raise RuntimeError("unforeseen")
        await real(self)

    monkeypatch.setattr(FileKeeper, "search", search)
    rig = await Rig(tmp_path, "refresh_interval 1").start(8)
    write(rig.log, "one")
    await rig.elapse(3)
    assert fail == []
    assert rig.lines == ["one"]
    assert any("unforeseen" in record.message for record in caplog.records)
    await rig.stop()


async def test_few_idle_files_wake_nobody_often(tmp_path):
    rig = Rig(tmp_path)
    write(rig.log)
    await rig.start(5)
    before = rig.stats["looked"]
    await rig.elapse(10)
    assert rig.stats["looked"] - before <= 11
    await rig.stop()


async def test_a_file_that_comes_between_the_look_into_a_folder_and_its_watch(tmp_path, monkeypatch):
    rig = Rig(tmp_path, "read_from_head true", path="{folder}/*.log")
    watch_folder = watch.Inotify.watch_folder

    def late(self, path):
        write(rig.log, "one")  # the folder was looked through already
        return watch_folder(self, path)

    monkeypatch.setattr(watch.Inotify, "watch_folder", late)
    await rig.start()
    await rig.elapse(1.0)
    assert rig.lines == ["one"]
    await rig.stop()


async def test_the_position_file_is_not_followed(tmp_path):
    (tmp_path / "pos").mkdir()
    write(tmp_path / "pos" / "y.pos", "one")
    rig = Rig(tmp_path, "read_from_head true", path="{folder}/pos/*.pos")
    await rig.start()
    write(tmp_path / "pos" / "y.pos", "two")
    await rig.elapse()
    assert rig.lines == ["one", "two"]
    await rig.stop()
