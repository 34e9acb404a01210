"""headrace stats: what it shows of one master and of several."""

from __future__ import annotations

import json
import re
import signal

import pytest

from headrace.commands.stats import megabytes, plain, text
from headrace.testing.process import wait_until

SOURCE = """\
<source>
  @type sample
  tag t
  rate 10
</source>
<match **>
  @type null
</match>
"""
LANES = {str(lane): {"opened": 1, "reused": 5} for lane in range(32)}
FIGURES = {
    "master": {"pid": 7, "generation": 2, "sources": ["/etc/a.conf"], "rss": 31 << 20, "uptime": 4.4},
    "workers": [
        {"worker": 0, "pid": 8, "state": "running", "rss": 34 << 20, "uptime": 3.4, "loop": {"lag": 0.0021}},
        {"worker": 1, "pid": 9, "state": "does not answer: timed out"},
    ],
    "total": {
        "uptime": 3.4,
        "rss": 36_610_048,
        "loop": {"lag": 0.0021},
        "pipeline": {
            "plugins": {
                "output_http.1": {
                    "connections": {"opened": 32, "reused": 25_700_000, "discarded_stale": 0},
                    "connections_by_lane": LANES,
                    "dropped": {"rejected": 0, "left_out": 0},
                    "buffer_queue_byte_size": 324_853,
                    "retry_in": 3.428,
                }
            }
        },
    },
}


@pytest.fixture
def two(prefix, headrace):
    """Two masters that serve, with their configuration files."""
    running = []
    for name in ("one", "two"):
        conf = prefix / f"fluent-{name}.conf"
        conf.write_text(SOURCE)
        process = headrace("headrace", "run", conf)
        process.wait_for("worker is now running")
        running.append((process, conf))
    return running


def test_without_a_pid_all_masters_are_shown(two, headrace):
    done = headrace.run("headrace", "stats")
    assert done.returncode == 0, done.stderr
    for process, conf in two:
        assert f"master {process.pid}  {conf}\n" in done.stdout
    whole = json.loads(headrace.run("headrace", "stats", "--json").stdout)
    assert {each["master"]["pid"] for each in whole["masters"]} == {process.pid for process, _ in two}
    assert all(each["total"]["pipeline"] for each in whole["masters"])


def test_one_pid_and_the_only_master_have_the_form_of_one(two, headrace):
    (first, _), (second, _) = two
    named = json.loads(headrace.run("headrace", "stats", second.pid, "--json").stdout)
    assert named["master"]["pid"] == second.pid
    assert f"master {first.pid}" not in headrace.run("headrace", "stats", second.pid).stdout
    assert first.stop() == 0
    assert json.loads(headrace.run("headrace", "stats", "--json").stdout).keys() == named.keys()


def test_watch_shows_all_until_the_last_has_ended(two, headrace):
    watching = headrace("headrace", "stats", "--watch")
    for process, conf in two:
        watching.wait_for(f"master {process.pid}  {conf}")
    watching.wait_for("/s)")
    two[0][0].stop()
    assert watching.running
    two[1][0].stop()
    assert watching.wait() == 0
    assert "e+" not in watching.output


def test_watch_in_json_is_a_document_on_each_line(two, headrace):
    watching = headrace("headrace", "stats", "--watch", "--json", two[0][0].pid)
    wait_until(lambda: watching.output.count("\n") >= 2)
    watching.stop(signal.SIGINT)
    for line in watching.output.splitlines()[:2]:
        assert json.loads(line)["master"]["pid"] == two[0][0].pid


def test_the_short_form_leaves_lanes_out_and_fits_a_screen():
    shown = text(FIGURES)
    assert shown.startswith("master 7  /etc/a.conf\n  up 4 s  31.0 MB  generation 2\n")
    assert "worker 0  pid 8  running  up 3 s  34.0 MB  lag 2.1 ms\n" in shown
    assert "worker 1  pid 9  does not answer: timed out\n" in shown
    assert "\n  output_http.1.connections\n    opened 32 " in shown
    assert "reused 25,700,000" in shown
    assert "connections_by_lane" not in shown
    assert "dropped" not in shown
    assert len(shown.splitlines()) < 20


def test_all_has_a_line_for_each_figure():
    shown = text(FIGURES, everything=True)
    assert len(re.findall(r"connections_by_lane\.\d+\.reused +5\n", shown)) == 32
    assert re.search(r"^  rss +34\.9 MB$", shown, re.MULTILINE)


def test_changes_are_those_of_a_second():
    name = "pipeline.plugins.output_http.1.connections.reused"
    shown = text(FIGURES, {name: 25_690_000}, seconds=2.0)
    assert "reused 25,700,000 (+5,000/s)" in shown
    assert shown.count("/s)") == 1


def test_numbers_are_for_people():
    assert [plain(n) for n in (0, 25_700_000, 3.0, 1234.5678, 0.00001, -1.5)] == [
        "0",
        "25,700,000",
        "3",
        "1,234.568",
        "0",
        "-1.5",
    ]
    assert plain(1.25, sign="+", digits=1) == "+1.2"
    assert megabytes(36_610_048) == "34.9 MB"
