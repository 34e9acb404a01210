"""headrace run, check, stats, plugins, version."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

from headrace.errors import ConfError
from headrace.testing.process import wait_until
from headrace.topology.detect import language
from headrace.version import VERSION

NGINX = """\
error_log stderr notice;
events {}
http {
    log_format mine escape=json '{"path":"$uri","status":$status}';
    server {
        listen 127.0.0.1:PORT;
        access_log off;
        location / { return 200 "hi"; }
        location /full { access_log pipeline:web.full; return 200 "hi"; }
        location /mine { access_log pipeline:web.mine mine; return 404 "no"; }
    }
}
"""
FLUENT = """\
<match web.**>
  @type stdout
</match>
"""


def get(port, path="/"):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = b""
        while data := sock.recv(65536):
            answer += data
    return answer


def serves(port):
    try:
        return bool(get(port))
    except OSError:
        return False


@pytest.fixture
def both(prefix, port):
    (prefix / "nginx.conf").write_text(NGINX.replace("PORT", str(port)))
    (prefix / "fluent.conf").write_text(FLUENT)
    return prefix


def test_version_is_that_of_the_package():
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == VERSION


def test_version_and_help(headrace):
    shown = headrace.run("headrace", "version").stdout
    assert shown.startswith("headrace ")
    assert headrace.run("headrace", "--version").stdout == shown
    helped = headrace.run("headrace", "--help")
    assert "examples:" in helped.stdout
    assert headrace.run("headrace").returncode == 2


def test_both_in_one_process_joined_by_the_access_log(both, port, headrace):
    process = headrace("headrace", "run", "nginx.conf", "fluent.conf")
    wait_until(lambda: serves(port))
    get(port, "/")
    get(port, "/full?a=1")
    get(port, "/mine")
    process.wait_for('web.mine: {"path":"/mine","status":404}')
    process.wait_for("web.full: {")
    assert '"uri":"/full","args":"a=1"' in process.output
    stats = json.loads(headrace.run("headrace", "stats", process.pid, "--json").stdout)
    assert stats["total"]["bridge"] == {"emitted": 2, "dropped": 0, "waiting": 0}
    assert stats["total"]["edge"]["requests"] >= 3
    assert set(stats["total"]) >= {"edge", "pipeline", "rss", "loop"}
    assert f"master {process.pid}" in headrace.run("headrace", "stats").stdout
    assert process.stop(signal.SIGQUIT) == 0


@pytest.mark.parametrize("level", ["main", "http"])
def test_a_log_that_nothing_is_written_to_is_not_made(both, port, headrace, level):
    conf = both / "nginx.conf"
    if level == "http":
        text = NGINX.replace("error_log stderr notice;\n", "").replace("http {", "http { error_log stderr;")
        conf.write_text(text.replace("PORT", str(port)))
    process = headrace("headrace", "run", "nginx.conf", "fluent.conf")
    wait_until(lambda: serves(port))
    assert process.stop(signal.SIGQUIT) == 0
    assert not (both / "logs").exists()


def test_a_daemon_has_its_log_open(both, port, headrace):
    text = NGINX.replace("error_log stderr notice;\n", "").replace("http {", "http { error_log stderr;")
    text = re.sub("access_log pipeline[^;]*", "access_log off", text)
    (both / "nginx.conf").write_text(text.replace("PORT", str(port)))
    done = headrace.run("headrace", "run", "--daemon", "--pid-file", both / "pid", "nginx.conf")
    assert done.returncode == 0, done.stderr
    os.kill(int((both / "pid").read_text()), signal.SIGQUIT)
    wait_until(lambda: not (both / "pid").exists())
    assert (both / "logs" / "error.log").exists()


def test_single_process(both, port, headrace):
    process = headrace("headrace", "run", "--single", "nginx.conf", "fluent.conf")
    wait_until(lambda: serves(port))
    assert headrace.run("headrace", "stats", process.pid).returncode == 0
    assert process.stop(signal.SIGINT) == 0


def test_a_log_into_the_pipeline_needs_one(both, headrace):
    done = headrace.run("headrace", "check", "nginx.conf")
    assert done.returncode == 1
    assert (
        f'"access_log pipeline:web.full" needs a pipeline, and this run has none in {both}/nginx.conf:9' in done.stderr
    )


def test_check_tells_everything_in_both_files(both, headrace):
    (both / "fluent.conf").write_text(FLUENT.replace("stdout", "stdoot"))
    (both / "nginx.conf").write_text("events {}\nhttp { lissten 1; servr { } }\n")
    done = headrace.run("headrace", "check", "--json", "nginx.conf", "fluent.conf")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [(item["level"], item["file"], item["line"]) for item in found] == [
        ("error", f"{both}/nginx.conf", 2),
        ("error", f"{both}/nginx.conf", 2),
        ("error", f"{both}/fluent.conf", 1),
    ] or len(found) == 3
    assert all(item["hint"] for item in found)


def test_check_of_right_files(both, headrace):
    done = headrace.run("headrace", "check", "nginx.conf", "fluent.conf")
    assert (done.returncode, done.stdout) == (0, "nginx.conf and fluent.conf: no errors\n")


def test_the_same_address_twice_is_an_error(both, port, headrace):
    (both / "fluent.conf").write_text(f"<source>\n@type http\nbind 127.0.0.1\nport {port}\n</source>\n{FLUENT}")
    done = headrace.run("headrace", "check", "nginx.conf", "fluent.conf")
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is a listener of both files" in done.stderr


def test_two_files_of_one_language(both, headrace):
    done = headrace.run("headrace", "run", "fluent.conf", "fluent.conf")
    assert done.returncode == 1
    assert "one of each" in done.stderr


def test_stats_of_nothing(headrace):
    done = headrace.run("headrace", "stats")
    assert done.returncode == 1
    assert "no headrace is running" in done.stderr


def test_plugins(headrace):
    assert "output: " in headrace.run("headrace", "plugins").stdout
    assert "reuse_connections" in headrace.run("headrace", "plugins", "output:http").stdout
    assert headrace.run("headrace", "plugins", "output:htpp").returncode == 1
    of_all_kinds = headrace.run("headrace", "plugins", "http")
    assert of_all_kinds.returncode == 0
    assert "input:http\n" in of_all_kinds.stdout
    assert "output:http\n" in of_all_kinds.stdout
    assert "None" not in of_all_kinds.stdout


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("my-fluentd.conf", "", "fluent"),
        ("nginx.conf.dev", "", "nginx"),
        ("pipeline.yaml", "config:\n- source:\n", "fluent"),
        ("pipeline.yml", "config:\n- source:\n", "fluent"),
        ("a.conf", "# x\n<source>\n", "fluent"),
        ("a.conf", "@include b\n", "fluent"),
        ("a.conf", "user www-data;\nevents {}\n", "nginx"),
        ("a.conf", "# <source>\n  http\n {\n", "nginx"),
    ],
)
def test_language(prefix, name, text, expected):
    (prefix / name).write_text(text)
    assert language(str(prefix / name)) == expected


def test_language_of_neither(prefix):
    (prefix / "a.txt").write_text("hello")
    with pytest.raises(ConfError, match="neither"):
        language(str(prefix / "a.txt"))


@pytest.mark.parametrize(
    "command", [("headrace", "plugins", "output:forward"), ("fluentd", "--show-plugin-config", "output:forward")]
)
def test_a_reader_that_has_seen_enough_gets_no_traceback(headrace, command):
    process = subprocess.Popen(headrace.command(*command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(20) == 141


def test_a_fluent_conf_is_known_by_a_section_that_is_not_closed(headrace, tmp_path):
    conf = tmp_path / "a.conf"
    conf.write_text("<match a\n  @type null\n</match>\n")
    ended = headrace.run("headrace", "check", conf)
    assert ended.returncode == 1
    assert f"{conf}:2" in ended.stdout + ended.stderr
