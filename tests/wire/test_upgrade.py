"""nginx's "Upgrading Executable on the Fly" with the gateway (https://nginx.org/en/docs/control.html)."""

from __future__ import annotations

import os
import signal

import wire_rig as rig

from headrace.testing.process import wait_until

CONF = """\
worker_processes 2;
pid PREFIX/nginx.pid;
error_log PREFIX/error.log info;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:PORT;
        listen unix:PREFIX/http.sock;
        location / { return 200 "VERSION\\n"; }
    }
}
"""


def test_the_old_master_stays_until_it_is_told_to_go(prefix, port, headrace):
    conf = prefix / "nginx.conf"
    pid_file, old_file = prefix / "nginx.pid", prefix / "nginx.pid.oldbin"

    def write(version: str) -> None:
        text = CONF.replace("PREFIX", str(prefix)).replace("PORT", str(port))
        conf.write_text(text.replace("VERSION", version))

    def answers() -> set[bytes]:
        found = set()
        for _ in range(8):
            found.add(rig.get(port).body)
            found.add(rig.curl("--unix-socket", prefix / "http.sock", "http://a/")[1])
        return found

    write("one")
    process = headrace("nginx", "-p", prefix, "-c", conf)
    assert process.wait() == 0  # it goes into the background
    old = int(pid_file.read_text())
    try:
        assert answers() == {b"one\n"}
        write("two")
        os.kill(old, signal.SIGUSR2)
        wait_until(lambda: pid_file.exists() and int(pid_file.read_text() or old) != old, "a new master")
        new = int(pid_file.read_text())
        assert int(old_file.read_text()) == old
        wait_until(lambda: b"two\n" in answers(), "answers of the new one")
        os.kill(old, signal.SIGWINCH)
        wait_until(lambda: answers() == {b"two\n"}, "answers of the new one only")
        os.kill(old, signal.SIGQUIT)
        wait_until(lambda: not old_file.exists(), "the end of the old master")
        assert answers() == {b"two\n"}
        assert int(pid_file.read_text()) == new
        write("three")
        os.kill(new, signal.SIGHUP)
        wait_until(lambda: answers() == {b"three\n"}, "a reload of the new master")
        os.kill(new, signal.SIGQUIT)
        wait_until(lambda: not pid_file.exists(), "the end")
        assert not (prefix / "http.sock").exists()
    finally:
        for path in (pid_file, old_file):
            if path.exists():
                os.kill(int(path.read_text()), signal.SIGKILL)
