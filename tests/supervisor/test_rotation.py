"""The engine's log begins anew by size and by period."""

from __future__ import annotations

import os
from datetime import date, datetime

import pytest

from headrace.supervisor.log import FluentLog
from headrace.supervisor.rotation import Rotation, begin_of


class Time:
    def __init__(self, *day):
        self.moment = datetime(*day, 12).timestamp()  # noqa: DTZ001 - local, as the log is

    def __call__(self):
        return self.moment


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_by_size_so_many_files_are_kept(tmp_path):
    log = FluentLog(str(tmp_path / "log"), rotation=Rotation(keep=3, size=100))
    for number in range(5):
        log.write("info", f"{number} " + "x" * 100)
        log.tend(rotate=True)
    assert names(tmp_path) == ["log", "log.0", "log.1"]
    assert "4 xx" in (tmp_path / "log.0").read_text()
    assert "3 xx" in (tmp_path / "log.1").read_text()
    assert (tmp_path / "log").read_text() == ""


def test_one_who_does_not_rotate_follows(tmp_path):
    path, rotation = str(tmp_path / "log"), Rotation(size=10)
    master, worker = FluentLog(path, rotation=rotation), FluentLog(path, rotation=rotation)
    worker.write("info", "before")
    worker.tend(rotate=False)
    assert names(tmp_path) == ["log"]
    master.tend(rotate=True)
    worker.tend(rotate=False)
    worker.write("info", "after")
    assert names(tmp_path) == ["log", "log.0"]
    assert "before" in (tmp_path / "log.0").read_text()
    assert "after" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("period", "same", "later", "name"),
    [
        ("daily", (2026, 1, 30), (2026, 1, 31), "log.20260130"),
        ("weekly", (2026, 1, 31), (2026, 2, 1), "log.20260131"),
        ("monthly", (2026, 1, 31), (2026, 2, 3), "log.20260131"),
    ],
)
def test_by_period(tmp_path, period, same, later, name):
    time = Time(2026, 1, 30)
    log = FluentLog(str(tmp_path / "log"), now=time, rotation=Rotation(period=period))
    log.write("info", "x")
    os.utime(tmp_path / "log", (time.moment, time.moment))
    for day in (time.moment, Time(*same).moment):
        time.moment = day
        log.tend(rotate=True)
        assert names(tmp_path) == ["log"]
    time.moment = Time(*later).moment
    log.tend(rotate=True)
    assert names(tmp_path) == ["log", name]
    log.tend(rotate=True)
    assert names(tmp_path) == ["log", name]


def test_a_name_that_is_taken_gets_a_number(tmp_path):
    time = Time(2026, 1, 30)
    (tmp_path / "log.20260130").touch()
    log = FluentLog(str(tmp_path / "log"), now=time, rotation=Rotation(period="daily"))
    log.write("info", "x")
    os.utime(tmp_path / "log", (time.moment, time.moment))
    time.moment += 86400
    log.tend(rotate=True)
    assert names(tmp_path) == ["log", "log.20260130", "log.20260130.1"]


def test_a_folder_that_is_gone_costs_the_rotation_only(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    log = FluentLog(str(folder / "log"), rotation=Rotation(size=1))
    log.write("info", "x")
    (folder / "log").unlink()
    folder.rmdir()
    log.tend(rotate=True)
    log.write("info", "y")


def test_weeks_begin_on_sunday():
    assert begin_of("weekly", date(2026, 2, 1)) == date(2026, 2, 1)
    assert begin_of("weekly", date(2026, 1, 31)) == date(2026, 1, 25)
