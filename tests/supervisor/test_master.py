"""Real masters and workers, with the small program."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from headrace.testing.process import wait_until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_crashed_worker_is_replaced(small):
    process = small.start(process={"workers": 1})
    first = small.ask()[0]
    with pytest.raises(OSError, match=r"no answer|reset"):
        small.ask("crash")
    process.wait_for(f"worker process {first} (worker 0) exited with code 9")
    wait_until(small.answers)
    assert small.ask()[0] != first
    assert process.stop() == 0


def test_a_worker_that_keeps_crashing_is_started_ever_more_slowly(small):
    process = small.start(ready=False, die_at_start=True, process={"workers": 1})
    process.wait_for("next try in 0.2 s")
    delays = [line.rpartition("in ")[2] for line in process.output.splitlines() if "next try" in line]
    assert delays == ["0.1 s", "0.2 s"]
    assert process.stop() == 0


def test_a_worker_that_cannot_start_ends_the_first_start(small):
    process = small.start(ready=False, fail_at_start=True)
    assert process.wait() == 1
    assert "cannot start: the configuration asks for it" in process.output


def test_what_fails_before_the_fork_is_an_error_of_the_command(small):
    process = small.start(ready=False, fail_to_prepare=True)
    assert process.wait() == 1
    assert process.output.endswith("cannot start: not prepared\n")


def test_reload_replaces_the_workers_and_keeps_the_listener(small):
    process = small.start("one")
    small.configure("two", process={"workers": 1})
    process.send(signal.SIGHUP)
    process.wait_for("generation 2 serves")
    wait_until(lambda: small.ask()[1:] == (2, "two"))
    process.wait_for("exited with code 0", count=2)
    assert process.stop() == 0


@pytest.mark.parametrize("fault", ["text", "fail_to_prepare", "fail_at_start", "die_at_start"])
def test_a_reload_that_fails_keeps_the_old_configuration(small, fault):
    process = small.start("one")
    if fault == "text":
        small.path.write_text("{broken")
    else:
        small.configure("two", **{fault: True})
    process.send(signal.SIGHUP)
    process.wait_for("reload failed, the old configuration stays")
    assert small.ask()[1:] == (1, "one")
    small.configure("three")
    process.send(signal.SIGHUP)
    wait_until(lambda: small.ask()[2] == "three")
    assert process.stop() == 0


def test_reloads_during_a_reload_are_done_once(small):
    process = small.start("one")
    for _ in range(5):
        process.send(signal.SIGHUP)
    small.configure("last")
    process.send(signal.SIGHUP)
    wait_until(lambda: small.ask()[2] == "last")
    assert process.stop() == 0
    assert process.output.count("reconfiguring") < 7


def test_no_connection_is_refused_during_reloads(small):
    process = small.start("one")
    done = threading.Event()
    counts = {"asked": 0}
    errors: list[BaseException] = []

    def load() -> None:
        while not done.is_set():
            try:
                small.ask("hold" if counts["asked"] % 10 == 0 else "who")
            except OSError as error:
                errors.append(error)
            counts["asked"] += 1

    clients = [threading.Thread(target=load) for _ in range(4)]
    small.configure("one", hold=0.05)
    for client in clients:
        client.start()
    try:
        for generation in (2, 3):
            process.send(signal.SIGHUP)
            process.wait_for(f"generation {generation} serves")
    finally:
        done.set()
        for client in clients:
            client.join()
    assert process.stop() == 0
    assert errors == []
    assert counts["asked"] > 0


def test_quit_answers_what_is_open(small):
    process = small.start("one", hold=0.3)
    with small.connect() as sock:
        sock.sendall(b"hold\n")
        wait_until(lambda: small.ask()[0])
        process.send(signal.SIGQUIT)
        assert sock.makefile().readline().endswith(" one\n")
    assert process.wait() == 0


def test_quit_ends_at_its_deadline(small):
    process = small.start("one", never_stop=True, process={"workers": 1, "shutdown_timeout": 0.3})
    process.send(signal.SIGQUIT)
    process.wait_for("not done after 0.3 s")
    process.wait()


def test_a_second_signal_hurries_a_graceful_stop(small):
    process = small.start("one", hold=100, process={"workers": 1})
    with small.connect() as sock:
        sock.sendall(b"hold\n")
        wait_until(lambda: small.ask()[0])
        process.send(signal.SIGQUIT)
        process.wait_for("gracefully shutting down")

        def ended() -> bool:
            process.send(signal.SIGTERM)
            return not process.running

        wait_until(ended, "the end")


def test_the_watchdog_replaces_a_worker_that_spins(small):
    process = small.start("one", process={"watchdog": 0.8})
    wait_until(lambda: len(small.workers()) == 2)
    with small.connect() as sock:
        sock.sendall(b"who\nspin\n")
        victim = int(sock.makefile().readline().split()[0])
        neighbours = set()

        def replaced() -> bool:
            # Only a connection that the spinning worker had accepted before waits for it; new ones go past.
            neighbours.add(small.ask()[0])
            return f"(pid {victim}) has been away from its loop" in process.output

        wait_until(replaced)
        assert victim not in neighbours
    process.wait_for(f"worker process {victim} (worker ")
    wait_until(lambda: not alive(victim))
    assert process.stop() == 0


def test_workers_end_with_a_master_that_is_killed(small):
    process = small.start("one")
    wait_until(lambda: len(small.workers()) == 2)
    workers = small.workers()
    process.stop(signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in workers))


def test_pid_file_is_written_and_removed(small, prefix):
    pid_file = prefix / "logs" / "x.pid"
    process = small.start("one", process={"pid_file": str(pid_file)})
    assert pid_file.read_text() == f"{process.pid}\n"
    assert process.stop() == 0
    assert not pid_file.exists()


def test_a_pid_file_that_cannot_be_written_is_named(small, prefix):
    (prefix / "logs").write_text("a file where a folder is needed")
    process = small.start("one", ready=False, process={"pid_file": str(prefix / "logs" / "x" / "x.pid")})
    assert process.wait() == 1
    assert f'mkdir() "{prefix}/logs/x" failed (20: Not a directory)' in process.output


def test_daemon_returns_when_it_serves(small, prefix):
    pid_file = prefix / "x.pid"
    settings = {"pid_file": str(pid_file), "daemon": True}
    process = small.start("one", ready=False, log=str(prefix / "log"), process=settings)
    assert process.wait() == 0
    pid = int(pid_file.read_text())
    try:
        assert pid != process.pid
        assert small.answers()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not alive(pid))
    assert not pid_file.exists()
    assert "exit" in (prefix / "log").read_text()


def test_daemon_that_cannot_start_says_so_by_its_status(small, prefix):
    process = small.start("one", ready=False, fail_at_start=True, log=str(prefix / "log"), process={"daemon": True})
    assert process.wait() == 1
    assert "the configuration asks for it" in (prefix / "log").read_text()


def test_single_process(small):
    process = small.start("one", process={"master": False})
    assert small.ask()[0] == process.pid
    process.send(signal.SIGHUP)
    process.wait_for("a reload needs a master process")
    assert process.stop(signal.SIGINT) == 0


def test_usr1_opens_the_log_anew(small, prefix):
    log = prefix / "log"
    process = small.start("one", log=str(log))
    log.rename(prefix / "log.1")
    process.send(signal.SIGUSR1)
    wait_until(log.exists)
    assert process.stop() == 0
    assert log.read_text().count("stopping") == 2
