"""Figures of running workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from headrace.errors import Error
from headrace.supervisor.admin import rundir
from headrace.supervisor.admin.client import add_up, ask, collect, flat
from headrace.testing.process import wait_until


@pytest.fixture
def run_base(prefix, monkeypatch) -> Path:
    monkeypatch.setenv(rundir.VARIABLE, str(prefix / "run"))
    return prefix / "run"


def test_figures_of_all_workers_are_added(small, run_base):
    process = small.start("one")
    for _ in range(5):
        small.ask()
    folder = rundir.find(None)
    assert folder == run_base / str(process.pid)
    wait_until(lambda: [worker["state"] for worker in collect(folder)["workers"]] == ["running", "running"])
    figures = collect(folder)
    assert figures["total"]["small"]["answers"] >= 5
    assert figures["total"]["small"]["longest_chain"] == 1
    assert figures["total"]["rss"] > 1 << 20
    assert figures["master"]["generation"] == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert process.stop() == 0
    assert not folder.exists()


def test_a_worker_that_spins_is_named_and_the_others_answer(small, run_base):
    process = small.start("one", process={"watchdog": 0})
    wait_until(lambda: len(small.workers()) == 2)
    with small.connect() as sock:
        sock.sendall(b"who\nspin\n")
        victim = int(sock.makefile().readline().split()[0])
        states = {worker["pid"]: worker["state"] for worker in collect(rundir.find(process.pid))["workers"]}
    assert "does not answer" in states.pop(victim)
    assert list(states.values()) == ["running"]
    os.kill(victim, signal.SIGKILL)
    assert process.stop() == 0


def test_nothing_runs_is_an_error_that_says_where_it_looked(run_base):
    with pytest.raises(Error, match=str(run_base)):
        rundir.find(None)


def test_other_requests_are_refused(small, run_base):
    process = small.start("one", process={"workers": 1})
    path = next(rundir.find(None).glob("*.sock"))
    assert ask(path)["worker"] == 0
    process.send(signal.SIGCONT)
    process.wait_for("dump written to")
    assert process.stop() == 0


def test_add_up_takes_sums_and_maxima():
    workers = [{"worker": 0, "a": {"n": 1, "peak_x": 5}, "text": "x"}, {"worker": 1, "a": {"n": 2, "peak_x": 3}}]
    assert add_up(workers) == {"a": {"n": 3, "peak_x": 5}}


def test_add_up_does_not_add_ratios_and_ages():
    name = "buffer_available_buffer_space_ratios"
    workers = [{name: 100.0, "oldest_chunk_age": 3, "weight": 60, "oldest_dropped": 1, "duration": 1},
               {name: 40.5, "oldest_chunk_age": 1, "weight": 60, "oldest_dropped": 1, "duration": 1}]  # fmt: skip
    assert add_up(workers) == {name: 40.5, "oldest_chunk_age": 3, "weight": 60, "oldest_dropped": 2, "duration": 2}


def test_flat_names_list_members_by_id():
    figures = {"outputs": [{"id": "http", "sent": 1}, {"sent": 2}], "x": 1}
    assert dict(flat(figures)) == {"outputs.http.sent": 1, "outputs.1.sent": 2, "x": 1}
