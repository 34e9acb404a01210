"""What <system> and its <log> section make of the engine's log."""

import json
import logging

import pytest

from headrace.supervisor.log import FluentLog, LogHandler, Style
from headrace.supervisor.rotation import Rotation


class Rig:
    def __init__(self, tmp_path, **style):
        self.path = tmp_path / "log"
        self.now = 1_700_000_000.0
        self.log = FluentLog(str(self.path), now=lambda: self.now)
        self.log.set_style(Style(stamp=lambda now: f"{now:.0f}", **style))

    def lines(self):
        return self.path.read_text().splitlines()


def test_json(tmp_path):
    rig = Rig(tmp_path, json=True)
    rig.log.write("info", 'a "quoted"\nline')
    rig.log.set_worker(2)
    rig.log.write("warn", "w")
    first, second = map(json.loads, rig.lines())
    assert first == {"time": "1700000000", "level": "info", "message": 'a "quoted"\nline'}
    assert second == {"time": "1700000000", "level": "warn", "message": "w", "worker_id": 2}


@pytest.mark.parametrize(("style", "kept"), [({"repeated": 10}, "ababba"), ({"same": 10}, "abba"), ({}, "abaabbba")])
def test_lines_that_are_left_out(tmp_path, style, kept):
    rig = Rig(tmp_path, **style)
    for message in "abaabb":
        rig.log.write("info", message)
        rig.now += 1
    rig.now += 10
    for message in "ba":
        rig.log.write("info", message)
    assert "".join(line[-1] for line in rig.lines()) == kept


def test_what_is_remembered_is_bounded(tmp_path):
    rig = Rig(tmp_path, same=1e9)
    for number in range(5000):
        rig.log.write("info", str(number))
    assert len(rig.log._seen) <= 1000


@pytest.mark.parametrize(("first", "count"), [(True, 1), (False, 3)])
def test_equal_stack_traces(tmp_path, first, count):
    rig = Rig(tmp_path, first_trace_only=first)
    logger = logging.getLogger("headrace.test.style")
    logger.propagate = False
    logger.handlers = [LogHandler(rig.log)]
    for _ in range(3):
        try:
            raise KeyError("why")
        except KeyError:
            logger.exception("failed")
    text = rig.path.read_text()
    assert text.count("[error]: failed") == 3
    assert text.count("KeyError: 'why'") == count
    assert text.count("suppressed same stacktrace") == 3 - count


def test_a_level_for_stack_traces(tmp_path):
    rig = Rig(tmp_path, trace_level="debug")
    rig.log.write_trace("error", "Traceback\n  x")
    assert rig.lines() == []
    rig.log.set_level("debug")
    rig.log.write_trace("error", "Traceback\n  x")
    assert rig.lines() == ["1700000000 [debug]:   Traceback", "    x"]


def test_a_file_that_the_configuration_names(tmp_path):
    log = FluentLog(fd=-1)
    log.begin_file(str(tmp_path / "log"))
    log.rotate(Rotation(size=10))
    log.write("info", "x" * 20)
    log.tend(rotate=True)
    log.write("info", "second")
    assert "second" in (tmp_path / "log").read_text()
    assert "xxx" in (tmp_path / "log.0").read_text()
    log.close()
