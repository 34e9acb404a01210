"""A new master takes the place of a running one."""

from __future__ import annotations

import os
import signal
import threading

from headrace.testing.process import wait_until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ended(process) -> int:
    """The exit status. Its output has no end as long as its successor writes there too."""
    wait_until(lambda: not process.running, "the end of the old master")
    return process._popen.returncode


def test_no_connection_is_refused_while_masters_change(small, prefix):
    pid_file = prefix / "x.pid"
    settings = {"process": {"pid_file": str(pid_file)}}
    process = small.start("one", **settings)
    old = set(small.workers())
    done = threading.Event()
    asked: list[str] = []
    errors: list[BaseException] = []

    def load() -> None:
        while not done.is_set():
            try:
                asked.append(small.ask("hold" if len(asked) % 10 == 0 else "who")[2])
            except OSError as error:
                errors.append(error)

    clients = [threading.Thread(target=load) for _ in range(4)]
    small.configure("two", hold=0.05, **settings)
    for client in clients:
        client.start()
    try:
        process.send(signal.SIGUSR2)
        assert ended(process) == 0
        wait_until(lambda: asked[-1] == "two", "the new configuration")
    finally:
        done.set()
        for client in clients:
            client.join()
    assert errors == []
    new = int(pid_file.read_text())
    assert new != process.pid
    assert not any(map(alive, old))
    os.kill(new, signal.SIGTERM)
    wait_until(lambda: not pid_file.exists(), "the end of the new master")
    wait_until(lambda: not small.answers(), "a free port")


def test_masters_change_again_and_again(small, prefix):
    pid_file = prefix / "x.pid"
    process = small.start("one", process={"pid_file": str(pid_file), "workers": 1})
    pids = [process.pid]
    for turn in range(3):
        os.kill(pids[-1], signal.SIGUSR2)
        wait_until(lambda: pid_file.read_text().strip() not in {"", str(pids[-1])}, f"master {turn}")
        pids.append(int(pid_file.read_text()))
        wait_until(lambda: not alive(pids[-2]) or pids[-2] == process.pid, "the end of the old one")
        assert small.answers()
    assert ended(process) == 0
    os.kill(pids[-1], signal.SIGTERM)
    wait_until(lambda: not pid_file.exists(), "the end")


def test_a_new_master_that_does_not_come_up_changes_nothing(small, prefix):
    pid_file = prefix / "x.pid"
    settings = {"process": {"pid_file": str(pid_file), "workers": 1}}
    process = small.start("one", **settings)
    for count, fault in enumerate(("text", "fail_to_prepare", "fail_at_start"), 1):
        if fault == "text":
            small.path.write_text("{broken")
        else:
            small.configure("two", **settings, **{fault: True})
        process.send(signal.SIGUSR2)
        process.wait_for("did not come up: this one goes on", count=count)
        assert small.ask()[2] == "one"
        assert int(pid_file.read_text()) == process.pid
    small.configure("three", **settings)
    process.send(signal.SIGUSR2)
    assert ended(process) == 0
    assert small.ask()[2] == "three"


def test_a_restart_that_is_asked_for_during_a_reload_comes_after_it(small):
    process = small.start("one")
    small.configure("two")
    process.send(signal.SIGHUP)
    process.send(signal.SIGUSR2)
    assert ended(process) == 0
    assert small.ask()[1:] == (1, "two")


def test_a_stop_during_a_restart_ends_both(small):
    process = small.start("one")
    process.send(signal.SIGUSR2)
    process.wait_for("starting the new master")
    process.send(signal.SIGTERM)
    assert ended(process) == 0
    wait_until(lambda: not small.answers(), "the end of both")


def test_an_upgrade_by_hand_as_nginx_does_it(small, prefix):
    """https://nginx.org/en/docs/control.html, "Upgrading Executable on the Fly"."""
    pid_file, old_file = prefix / "x.pid", prefix / "x.pid.oldbin"
    settings = {"process": {"pid_file": str(pid_file), "upgrade_by_hand": True, "workers": 1}}
    process = small.start("one", **settings)
    small.configure("two", **settings)
    process.send(signal.SIGUSR2)
    process.wait_for("serves beside this one")
    new = int(pid_file.read_text())
    assert int(old_file.read_text()) == process.pid
    process.send(signal.SIGWINCH)
    process.wait_for("exited with code 0")
    wait_until(lambda: {small.ask()[2] for _ in range(5)} == {"two"}, "answers of the new one only")
    # Back: the old master starts its workers again, the new one ends.
    small.configure("back", **settings)
    process.send(signal.SIGHUP)
    wait_until(lambda: "back" in {small.ask()[2] for _ in range(5)}, "answers of the old one")
    os.kill(new, signal.SIGQUIT)
    process.wait_for("has ended: this one goes on")
    assert int(pid_file.read_text()) == process.pid
    assert not old_file.exists()
    assert small.ask()[2] == "back"
    # And forth: the old one ends.
    small.configure("three", **settings)
    process.send(signal.SIGUSR2)
    process.wait_for("serves beside this one", count=2)
    process.send(signal.SIGQUIT)
    assert ended(process) == 0
    assert small.ask()[2] == "three"
    assert not old_file.exists()
    assert int(pid_file.read_text()) != process.pid


def test_daemons_change(small, prefix):
    pid_file = prefix / "x.pid"
    settings = {"log": str(prefix / "log"), "process": {"pid_file": str(pid_file), "daemon": True}}
    process = small.start("one", ready=False, **settings)
    assert ended(process) == 0
    first = int(pid_file.read_text())
    small.configure("two", **settings)
    os.kill(first, signal.SIGUSR2)
    wait_until(lambda: not alive(first), "the end of the old daemon")
    second = int(pid_file.read_text())
    try:
        assert small.ask()[2] == "two"
    finally:
        os.kill(second, signal.SIGTERM)
        wait_until(lambda: not alive(second), "the end of the new daemon")
