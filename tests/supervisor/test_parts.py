"""The small parts of the supervisor, without processes."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from headrace.errors import Error
from headrace.supervisor import osproc, pidfile
from headrace.supervisor.generation import LONGEST_DELAY, Child, Generation, exit_text
from headrace.supervisor.heartbeat import Board, Pulse
from headrace.supervisor.listeners import close_all, open_all
from headrace.supervisor.log import FluentLog, LogHandler, NginxLog
from headrace.supervisor.program import Listen, ProcessSettings


def test_lines_of_both_forms(tmp_path):
    moment = 1767323045.0
    path = tmp_path / "log"
    fluent = FluentLog(str(path), now=lambda: moment)
    fluent.write("debug", "not this one")
    fluent.write("warn", "of the master")
    fluent.set_worker(3)
    fluent.write("info", "of a worker")
    nginx = NginxLog(str(path), now=lambda: moment)
    nginx.write("info", "hello")
    lines = path.read_text().splitlines()
    stamp = r"2026-01-0\d \d\d:04:05 [+-]\d{4}"
    pid = os.getpid()
    assert [line[25:] for line in lines[:2]] == [" [warn]: of the master", " [info]: #3 of a worker"]
    assert re.fullmatch(stamp, lines[0][:25])
    assert lines[2][19:] == f" [notice] {pid}#{pid}: hello"


def test_reopen_and_close(tmp_path):
    log = FluentLog(str(tmp_path / "log"))
    (tmp_path / "log").rename(tmp_path / "old")
    log.reopen()
    log.write("info", "new")
    log.close()
    log.write("info", "after the end")
    assert (tmp_path / "log").read_text().endswith("new\n")
    assert (tmp_path / "old").read_text() == ""


def test_python_logging_reaches_the_log(tmp_path):
    log = FluentLog(str(tmp_path / "log"))
    logger = logging.getLogger("headrace.test.parts")
    logger.propagate = False
    logger.addHandler(LogHandler(log))
    logger.warning("%s and %d", "text", 5)
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("failed")
    logger.error("%d", "no number")
    text = (tmp_path / "log").read_text()
    assert "[warn]: text and 5\n" in text
    assert "[error]: failed\n" in text
    assert "[error]:   Traceback" in text
    assert text.count("ValueError: why") == 1
    assert "[error]: %d\n" in text


def test_a_plugin_is_named_before_what_it_says(tmp_path):
    log = FluentLog(str(tmp_path / "log"))
    logger = logging.getLogger("headrace.pipeline.output_forward.1")
    handler = LogHandler(log)
    logger.addHandler(handler)
    logger.warning("failed")
    logger.removeHandler(handler)
    assert (tmp_path / "log").read_text().endswith(" [warn]: [output_forward.1] failed\n")


def test_a_counter_that_stands_still_is_silent():
    board = Board(2)
    slot = board.claim()
    pulse = Pulse(100.0)
    assert pulse.silent(board.read(slot), 103.0) == 3.0
    board.beat(slot)
    assert pulse.silent(board.read(slot), 104.0) == 0.0
    assert pulse.silent(board.read(slot), 106.5) == 2.5
    board.claim()
    with pytest.raises(OSError, match="too many workers"):
        board.claim()
    board.release(slot)
    assert board.read(board.claim()) == 0


def test_delays_grow_to_a_bound_and_a_steady_worker_starts_anew():
    program = SimpleNamespace(process=ProcessSettings())
    generation = Generation(1, program, {}, None)
    child = Child(0, 1, 0, -1, Pulse(0.0), generation)
    delays = [generation.delay_after(child) for _ in range(12)]
    assert delays[:4] == [0.0, 0.1, 0.2, 0.4]
    assert delays[-1] == LONGEST_DELAY
    child.born -= 100
    assert generation.delay_after(child) == 0.0
    program.process = ProcessSettings(restart_interval=7.0)
    assert generation.delay_after(child) == 7.0
    child.born += 100
    assert [generation.delay_after(child) for _ in range(12)][-1] == max(LONGEST_DELAY, 7.0)


def test_how_a_process_ended():
    assert exit_text(0) == "exited with code 0"
    assert exit_text(2 << 8) == "exited with code 2"
    assert exit_text(6) == "exited on signal 6 (SIGABRT)"


def test_listeners_are_kept_and_a_failure_closes_only_the_new_ones(tmp_path):
    def tcp():
        return socket.create_server(("127.0.0.1", 0))

    def unix():
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "s"))
        sock.listen()
        return sock

    def fail():
        raise PermissionError(13, "Permission denied")

    log = FluentLog(os.devnull)
    first = open_all([Listen("a", tcp), Listen("a", fail)], {}, log)
    opened = []

    def noted():
        opened.append(unix())
        return opened[0]

    with pytest.raises(Error, match=r"bind\(\) to c failed \(13: Permission denied\)"):
        open_all([Listen("a", fail), Listen("b", noted), Listen("c", fail)], first, log)
    assert opened[0].fileno() == -1
    assert not (tmp_path / "s").exists()
    assert first["a"].fileno() >= 0
    close_all(first.values())


def test_pid_file_of_somebody_else_stays(tmp_path):
    path = str(tmp_path / "x.pid")
    pidfile.write(path, 5)
    pidfile.remove(path, 6)
    assert pidfile.read(path) == 5
    pidfile.remove(path, 5)
    assert not os.path.exists(path)


def test_folders_are_made_below_the_prefix_only(tmp_path):
    pidfile.make_folder(str(tmp_path / "in" / "logs" / "x.pid"), str(tmp_path / "in"))
    assert (tmp_path / "in" / "logs").is_dir()
    with pytest.raises(Error, match=r'open\(\) ".*/out/x.pid" failed \(2: No such file or directory\)'):
        pidfile.write(str(tmp_path / "out" / "x.pid"), 1, str(tmp_path / "in"))


def test_who_may_enter_a_folder(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    somebody = osproc.Account("somebody", 54321, 54321, ())
    root = osproc.Account("root", 0, 0, ())
    owner = osproc.Account("me", os.geteuid(), os.getegid(), ())
    (tmp_path / "a").chmod(0o700)
    assert not osproc.may_enter(somebody, str(inner))
    assert osproc.may_enter(root, str(inner))
    assert osproc.may_enter(owner, str(inner)) or os.geteuid() == 0
    assert osproc.may_enter(somebody, "/usr/bin")


def test_signals_do_nothing_when_the_loop_has_ended():
    program = """
import os, signal
from headrace.supervisor.events import Events

class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGUSR2)  # when the interpreter has given the signals back

events = Events([signal.SIGUSR2, signal.SIGTERM])
os.late = Late()
events.end()
os.kill(os.getpid(), signal.SIGTERM)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
