"""headrace-nginx: the flags, messages and exit statuses of nginx."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from headrace.testing.process import wait_until

CONF = """\
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:PORT;
        location / { return 200 "TEXT"; }
    }
}
"""


@pytest.fixture
def site(prefix, port):
    """A prefix with conf/nginx.conf; its port."""
    (prefix / "conf").mkdir()
    write(prefix, port)
    return prefix


def write(prefix, port, text="one", before=""):
    (prefix / "conf" / "nginx.conf").write_text(before + CONF.replace("PORT", str(port)).replace("TEXT", text))


def get(port, path="/"):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = b""
        while data := sock.recv(65536):
            answer += data
    return answer.partition(b"\r\n\r\n")[2].decode()


def serves(port):
    try:
        return bool(get(port))
    except OSError:
        return False


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_t_says_what_nginx_says(site, headrace):
    conf = site / "conf" / "nginx.conf"
    done = headrace.run("nginx", "-p", site, "-t")
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"nginx: the configuration file {conf} syntax is ok\nnginx: configuration file {conf} test is successful\n"
    )
    assert headrace.run("nginx", "-p", site, "-tq").stderr == ""


def test_t_makes_nothing(site, headrace):
    conf = site / "conf" / "nginx.conf"
    conf.write_text(conf.read_text().replace("access_log off", "access_log deep/down/a.log"))
    before = sorted(site.rglob("*"))
    assert headrace.run("nginx", "-p", site, "-t").returncode == 0
    (site / "logs").mkdir()
    assert headrace.run("nginx", "-p", site, "-t").returncode == 0
    (site / "logs").rmdir()
    assert sorted(site.rglob("*")) == before


def test_t_names_a_log_that_could_not_be_opened(site, headrace):
    (site / "logs").write_text("in the way")
    done = headrace.run("nginx", "-p", site, "-t")
    assert done.returncode == 1
    assert f'nginx: [emerg] open() "{site}/logs/error.log" failed (20: Not a directory)' in done.stderr
    (site / "logs").unlink()
    (site / "logs" / "error.log").mkdir(parents=True)
    done = headrace.run("nginx", "-p", site, "-t")
    assert done.returncode == 1
    assert f'nginx: [emerg] open() "{site}/logs/error.log" failed (21: Is a directory)' in done.stderr


@pytest.mark.parametrize("command", ["quit", "stop", "reopen", "reload"])
def test_a_signal_needs_a_file_that_can_be_read(site, headrace, command):
    conf = site / "conf" / "nginx.conf"
    conf.write_text("events {}\nhttp {\n")
    done = headrace.run("nginx", "-p", site, "-s", command)
    assert done.returncode == 1
    assert done.stderr.startswith("nginx: [emerg] unexpected end of file")


def test_t_of_a_wrong_file(site, headrace):
    conf = site / "conf" / "nginx.conf"
    conf.write_text("events {}\nhttp { server { lissten 80; } }\n")
    done = headrace.run("nginx", "-p", site, "-t")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == f'nginx: [emerg] unknown directive "lissten" in {conf}:2'
    assert "listen" in lines[1]
    assert lines[-1] == f"nginx: configuration file {conf} test failed"


def test_t_of_a_missing_file(prefix, headrace):
    done = headrace.run("nginx", "-p", prefix, "-c", "none.conf", "-t")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == (
        f'nginx: [emerg] open() "{prefix}/none.conf" failed (2: No such file or directory)'
    )


def test_dump(site, headrace):
    done = headrace.run("nginx", f"-p{site}", "-T")
    conf = site / "conf" / "nginx.conf"
    assert done.stdout == f"# configuration file {conf}:\n{conf.read_text()}\n"


def test_version(headrace):
    short, long = headrace.run("nginx", "-v"), headrace.run("nginx", "-V")
    assert (short.stdout, long.stdout) == ("", "")
    assert re.fullmatch(r"nginx version: nginx/1\.26\.\d+ \(headrace \S+\)\n", short.stderr)
    assert long.stderr.startswith(short.stderr)
    assert re.search(r"^built with OpenSSL \d+\.\d+\.\d+", long.stderr, re.MULTILINE)
    assert re.search(r"^configure arguments: .*--with-http_ssl_module", long.stderr, re.MULTILINE)
    assert "--without-http_perl" not in long.stderr
    assert re.search(r"^configure arguments: .* --with-stream ", long.stderr, re.MULTILINE)
    assert "--with-mail" not in long.stderr


def test_help(headrace):
    for flag in ("-h", "-?"):
        done = headrace.run("nginx", flag)
        assert done.returncode == 0
        assert "-s signal" in done.stderr


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-z"], 'nginx: invalid option: "z"\n'),
        (["x"], 'nginx: invalid option: "x"\n'),
        (["-p"], 'nginx: option "-p" requires directory name\n'),
        (["-c"], 'nginx: option "-c" requires file name\n'),
        (["-g"], 'nginx: option "-g" requires parameter\n'),
        (["-s", "foo"], 'nginx: invalid option: "-s foo"\n'),
    ],
)
def test_wrong_flags(headrace, args, text):
    done = headrace.run("nginx", *args)
    assert (done.returncode, done.stderr) == (1, text)


def test_signals_without_a_master(site, headrace):
    pid_file = site / "logs" / "nginx.pid"
    done = headrace.run("nginx", "-p", site, "-s", "quit")
    assert (done.returncode, done.stderr) == (
        1,
        f'nginx: [error] open() "{pid_file}" failed (2: No such file or directory)\n',
    )
    pid_file.parent.mkdir()
    pid_file.write_text("12x\n")
    assert headrace.run("nginx", "-p", site, "-s", "quit").stderr == (
        f'nginx: [error] invalid PID number "12x" in "{pid_file}"\n'
    )
    pid_file.write_text(f"{2**22 + 1}\n")
    assert headrace.run("nginx", "-p", site, "-s", "stop").stderr == (
        f"nginx: [alert] kill({2**22 + 1}, 15) failed (3: No such process)\n"
    )


def test_daemon_and_every_signal_by_the_pid_file(site, port, headrace):
    started = headrace.run("nginx", "-p", site, "-g", "error_log logs/e.log notice;")
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    pid_file = site / "logs" / "nginx.pid"
    pid = int(pid_file.read_text())
    try:
        assert get(port) == "one"
        write(site, port, "two")
        assert headrace.run("nginx", "-p", site, "-s", "reload").returncode == 0
        wait_until(lambda: get(port) == "two")
        log = site / "logs" / "e.log"
        sound = (site / "conf" / "nginx.conf").read_text()
        (site / "conf" / "nginx.conf").write_text("nonsense;\n" + sound)
        refused = headrace.run("nginx", "-p", site, "-s", "reload")
        assert refused.returncode == 1
        assert f'nginx: [emerg] unknown directive "nonsense" in {site}/conf/nginx.conf:1' in refused.stderr
        assert log.read_text().count("reconfiguring") == 1  # the master was left alone
        (site / "conf" / "nginx.conf").write_text(sound)
        log.rename(site / "logs" / "e.1")
        assert headrace.run("nginx", "-p", site, "-s", "reopen", "-g", "error_log logs/e.log;").returncode == 0
        wait_until(log.exists)
        assert headrace.run("nginx", "-p", site, "-s", "quit").returncode == 0
        wait_until(lambda: not alive(pid))
        assert not pid_file.exists()
        assert re.search(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[notice\] \d+#\d+: exit$", log.read_text(), re.MULTILINE)
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_an_address_in_use_ends_the_start(site, port, headrace):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()
        done = headrace.run("nginx", "-p", site)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"nginx: [emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)"
    )


def test_an_unknown_user(site, headrace):
    if os.geteuid() != 0:
        pytest.skip("only root looks for the user")
    done = headrace.run("nginx", "-p", site, "-g", "user nosuchuser;")
    assert (done.returncode, done.stderr) == (1, 'nginx: [emerg] getpwnam("nosuchuser") failed\n')


def test_e_is_the_log_of_a_file_that_names_none(site, port, headrace):
    process = headrace("nginx", "-p", site, "-e", "own.log", "-g", "daemon off;")
    wait_until(lambda: serves(port))
    assert (site / "own.log").exists()
    assert not (site / "logs" / "error.log").exists()
    assert process.stop(signal.SIGQUIT) == 0


def test_reload_under_load_refuses_nothing(site, port, headrace):
    process = headrace("nginx", "-p", site, "-e", "stderr", "-g", "daemon off; worker_processes 2;")
    wait_until(lambda: serves(port))
    done = threading.Event()
    wrong: list[object] = []

    def load():
        while not done.is_set():
            try:
                body = get(port)
            except OSError as error:
                wrong.append(error)
            else:
                if body not in {"one", "two"}:
                    wrong.append(body)

    clients = [threading.Thread(target=load) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        write(site, port, "two")
        process.send(signal.SIGHUP)
        wait_until(lambda: [get(port) for _ in range(20)] == ["two"] * 20)
        write(site, port, "three", before="nonsense on;\n")
        process.send(signal.SIGHUP)
        process.wait_for('unknown directive "nonsense"')
    finally:
        done.set()
        for client in clients:
            client.join()
    assert wrong == []
    assert get(port) == "two"
    assert process.stop(signal.SIGQUIT) == 0


def test_a_connection_that_waits_during_a_quit_gets_its_answer(site, port, headrace):
    process = headrace("nginx", "-p", site, "-e", "stderr", "-g", "daemon off; error_log stderr notice;")
    wait_until(lambda: serves(port))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert serves(port)  # later than the other one, which is therefore known to the worker
        process.send(signal.SIGQUIT)
        process.wait_for("gracefully shutting down")
        sock.sendall(b"\r\n")
        answer = sock.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"Connection: close" in answer
    assert process.wait() == 0


def test_a_handler_that_never_yields_is_ended_and_its_neighbour_goes_on(site, port, headrace):
    conf = site / "conf" / "nginx.conf"
    conf.write_text(
        conf.read_text().replace(
            "location / {", "location /spin { content_by_lua_block { while true do end } }\nlocation / {"
        )
    )
    process = headrace(
        "nginx", "-p", site, "-e", "stderr", "-g", "daemon off; worker_processes 2;", env={"HEADRACE_WATCHDOG": "0.8"}
    )
    wait_until(lambda: serves(port))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(b"GET /spin HTTP/1.0\r\n\r\n")
        wait_until(lambda: [get(port) for _ in range(5)] and "has been away from its loop" in process.output)
        assert sock.recv(100) == b""
    process.wait_for("exited on signal 6")
    assert serves(port)
    assert process.stop(signal.SIGQUIT) == 0


def test_workers_become_the_user(site, port, headrace):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    entry = pwd.getpwnam("nobody")
    site.chmod(0o755)
    process = headrace("nginx", "-p", site, "-e", "stderr", "-g", "daemon off; user nobody;")
    wait_until(lambda: serves(port))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    status = Path(f"/proc/{children[0]}/status").read_text()
    assert re.search(rf"^Uid:\t{entry.pw_uid}\t{entry.pw_uid}\t", status, re.MULTILINE)
    temporary = (site / "client_body_temp").stat()  # a worker could not make it in a folder of root's
    assert (temporary.st_uid, temporary.st_mode & 0o777) == (entry.pw_uid, 0o700)
    assert re.search(rf"^Gid:\t{entry.pw_gid}\t{entry.pw_gid}\t", status, re.MULTILINE)
    assert process.stop(signal.SIGQUIT) == 0
