"""in_tail in real processes: reloads under load, kills, few descriptors, and files taken over from Fluentd and back."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import wire_rig as rig

from headrace.testing.plugin import need_fluentd
from headrace.testing.process import wait_until

CONF = """\
<source>
  @type tail
  path FOLDER/logs/w*
  pos_file FOLDER/x.pos
  pos_file_compaction_interval 1s
  refresh_interval 1s
  rotate_wait 1s
  tag t
  read_from_head true
  MORE
  <parse>
    @type none
  </parse>
</source>
<match t>
  @type file
  path FOLDER/out
  append true
  <format>
    @type single_value
  </format>
  <buffer>
    @type file
    path FOLDER/buffer
    flush_mode interval
    flush_interval 0.2s
    flush_at_shutdown true
  </buffer>
</match>
"""


def configured(prefix, more="", buffer="buffer"):
    (prefix / "logs").mkdir(exist_ok=True)
    conf = prefix / "tail.conf"
    text = CONF.replace("MORE", more).replace("FOLDER/buffer", f"FOLDER/{buffer}").replace("FOLDER", str(prefix))
    conf.write_text(text + rig.NO_LOG_EVENTS)
    return conf


def arrived(prefix):
    out = []
    for path in sorted(prefix.glob("out*.log")):
        if path.name != "out.conf":
            out += path.read_text().splitlines()
    return out


class Writer:
    """Appends numbered lines to a log that it rotates, from a thread, until `stop`."""

    def __init__(self, folder, *, rotate_every=700, pause=0.001):
        self.folder = folder
        self.written = 0
        self._rotate_every = rotate_every
        self._pause = pause
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self):
        log = self.folder / "w.log"
        rotations = 0
        while not self._end.is_set():
            with open(log, "a", encoding="ascii") as file:
                while not self._end.is_set():
                    file.write(f"{self.written:08d}\n")
                    file.flush()
                    self.written += 1
                    if self.written % self._rotate_every == 0:
                        break
                    if self.written % 10 == 0:
                        time.sleep(self._pause)
                else:
                    return
            rotations += 1
            os.rename(log, self.folder / f"w.{rotations}.rotated")

    def stop(self):
        self._end.set()
        self._thread.join(30)
        return [f"{number:08d}" for number in range(self.written)]


@pytest.fixture
def writer(prefix):
    (prefix / "logs").mkdir()
    made = Writer(prefix / "logs")
    yield made
    made.stop()


def test_reloads_under_load_every_line_once(prefix, headrace, writer):
    process = headrace("headrace", "run", configured(prefix))
    process.wait_for("worker is now running")
    for number in range(4):
        have = writer.written
        wait_until(lambda have=have: writer.written > have + 300, "writing")
        process.send(signal.SIGHUP)
        process.wait_for("worker is now running", count=number + 2)
    have = writer.written
    wait_until(lambda: writer.written > have + 300, "writing")
    expected = writer.stop()
    wait_until(lambda: len(arrived(prefix)) >= len(expected), "all lines")
    assert process.stop() == 0
    got = arrived(prefix)
    assert len(got) == len(expected)
    assert sorted(got) == expected


def test_kills_lose_nothing(prefix, headrace, writer):
    conf = configured(prefix)
    for number in range(6):
        process = headrace("headrace", "run", conf)
        process.wait_for("worker is now running")
        wanted = len(arrived(prefix)) + 100 * (number + 1)
        wait_until(lambda wanted=wanted: len(arrived(prefix)) > wanted, "lines")
        rig.kill(process)
    expected = writer.stop()
    process = headrace("headrace", "run", conf)
    wait_until(lambda: set(expected) <= set(arrived(prefix)), "all lines")
    assert process.stop() == 0
    got = arrived(prefix)
    assert set(got) == set(expected)
    assert len(got) - len(expected) <= 6 * 2000, "what a kill repeats is a batch, and a chunk in flight"
    assert not list(prefix.glob("*.compact"))


def test_more_files_than_descriptors(prefix, headrace):
    conf = configured(prefix, "enable_stat_watcher true")
    for number in range(1500):
        (prefix / "logs" / f"w{number}.log").write_text(f"{number:08d}\n")
    command = " ".join(f"'{part}'" for part in headrace.command("headrace", "run", conf))
    process = headrace.start(["sh", "-c", f"ulimit -n 256; exec {command}"])
    wait_until(lambda: len(arrived(prefix)) >= 1500, "the first lines")
    for number in range(1500):
        with open(prefix / "logs" / f"w{number}.log", "a", encoding="ascii") as file:
            file.write(f"{number + 1500:08d}\n")
        if number % 10 == 0:
            os.rename(prefix / "logs" / f"w{number}.log", prefix / "logs" / f"{number}.rotated")
    wait_until(lambda: len(arrived(prefix)) >= 3000, "the second lines")
    figures = rig.plugin(rig.stats(headrace, process), "input_tail")
    assert figures["open_files"] <= 64
    assert process.stop() == 0
    assert sorted(arrived(prefix)) == [f"{number:08d}" for number in range(3000)]
    assert "cannot" not in process.output


PATIENCE = 60.0  # Ruby starts slowly on a busy machine


@pytest.mark.fluentd
@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "follow_inodes true"])
def test_files_taken_over_from_fluentd_and_given_back(prefix, headrace, more):
    """Three changes of hands; between them the log grows, and is rotated once."""
    need_fluentd()
    (prefix / "logs").mkdir()
    log = prefix / "logs" / "w.log"
    written = 0

    def write(count):
        nonlocal written
        with open(log, "a", encoding="ascii") as file:
            for _ in range(count):
                file.write(f"{written:08d}\n")
                written += 1

    def everything():
        return sorted(arrived(prefix)) == [f"{number:08d}" for number in range(written)]

    for number, name in enumerate(("fluentd", "headrace", "fluentd", "headrace")):
        write(100)
        if number == 1:
            os.rename(log, prefix / "logs" / "w.log.1")  # headrace finds what Fluentd had not read of it
            write(50)
        conf = configured(prefix, more, buffer=f"buffer{number}")
        if name == "fluentd":
            process = headrace.start([*need_fluentd(), "-c", str(conf)])
            process.wait_for("worker is now running", timeout=PATIENCE)
        else:
            process = headrace("headrace", "run", conf)
            process.wait_for("worker is now running")
        write(100)
        wait_until(everything, f"every line by {name}, once", PATIENCE)
        assert process.stop() == 0
        write(30)
    assert "Unparsable" not in process.output
    for line in (prefix / "x.pos").read_text().splitlines():
        path, offset, inode = line.split("\t")
        assert len(offset) == len(inode) == 16
        assert path.startswith(str(prefix))


def test_the_example(prefix, headrace):
    logs = prefix / "logs"
    logs.mkdir()
    process = headrace("headrace", "run", rig.EXAMPLES / "tail.conf", env={"LOGS": str(logs)})
    process.wait_for("worker is now running")
    (logs / "one.json").write_text('{"message":"hello"}\n')
    (logs / "two.trace").write_text("2024-01-02 03:04:05 ERROR it broke\n  at here\n  at there\n")
    process.wait_for(f'app.json: {{"message":"hello","file":"{logs}/one.json"}}')
    process.wait_for('app.trace: {"level":"ERROR","message":"it broke\\n  at here\\n  at there"}')
    assert process.stop() == 0
