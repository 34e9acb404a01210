"""A source and a filter that match no line, under a fixed load: memory stays, and the log is not flooded."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
import wire_rig as rig

from headrace.testing.process import wait_until

CONF = """\
<source>
  @type tail
  @id lines
  path FOLDER/in.log
  pos_file FOLDER/in.pos
  read_from_head true
  tag tailed
  <parse>
    @type regexp
    expression /^(?<never>NEVER)$/
  </parse>
</source>
<source>
  @type tail
  path FOLDER/in.log
  pos_file FOLDER/raw.pos
  read_from_head true
  tag parsed
  <parse>
    @type none
  </parse>
</source>
<filter parsed>
  @type parser
  key_name message
  <parse>
    @type regexp
    expression /^(?<never>NEVER)$/
  </parse>
</filter>
<match **>
  @type null
</match>
"""
WARM_UP = 4
SECONDS = 5
PER_SECOND = 2000
GROWTH = 3 << 19
"""Bytes. To keep only the text of the lines that one of the two plugins cannot match would take 2 MB and more."""
LINES = 40
"""Log lines from the start to the end: those of an ordinary start, and what the throttles let through."""


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def worker_of(headrace, process):
    done = headrace.run("headrace", "stats", process.pid, "--json")
    (worker,) = json.loads(done.stdout)["workers"]
    return worker["pid"]


@pytest.fixture
def load(headrace):
    """Starts a writer of PER_SECOND lines a second; counts what it wrote."""
    prefix = headrace.prefix
    ended = threading.Event()
    written = [0]

    def write():
        with (prefix / "in.log").open("a", buffering=1 << 16) as file:
            while not ended.wait(0.05):
                for _ in range(PER_SECOND // 20):
                    written[0] += 1
                    file.write(f"{written[0]:08d} {'x' * 190}\n")
                file.flush()

    thread = threading.Thread(target=write, daemon=True)

    def begin():
        thread.start()
        return written

    yield begin
    ended.set()
    thread.join(10)


def test_lines_that_never_match_take_no_memory_and_do_not_flood_the_log(headrace, load):
    prefix = headrace.prefix
    conf = prefix / "unmatched.conf"
    conf.write_text(CONF.replace("FOLDER", str(prefix)) + rig.NO_LOG_EVENTS)
    (prefix / "in.log").touch()
    process = headrace("headrace", "run", conf)
    process.wait_for("worker is now running")
    worker = worker_of(headrace, process)

    written = load()

    def unmatched() -> int:
        return int(rig.plugin(rig.stats(headrace, process), "lines")["unmatched"])

    time.sleep(WARM_UP)  # a load needs its time: this is what the test is about
    first, lines, before = written[0], process.output.count("\n"), resident(worker)
    time.sleep(SECONDS)
    after = resident(worker)
    assert written[0] - first > PER_SECOND
    wait_until(lambda: unmatched() >= written[0] - PER_SECOND, "the lines to be read")
    assert after - before < GROWTH, f"{before} -> {after} bytes"
    assert lines < LINES, process.output
    assert process.output.count("\n") < LINES, process.output
    assert process.stop() == 0
