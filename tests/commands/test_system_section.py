"""<system> end to end: calls by HTTP, the log's form and file, the dump at the start, further files, the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request

import pytest

from headrace.testing.process import wait_until

CONF = """
<system>
  {system}
</system>
<source>
  @type sample
  tag a.b
</source>
<match **>
  @type null
</match>
"""


@pytest.fixture
def write(prefix):
    def made(*system, name="fluent.conf", text=CONF):
        path = prefix / name
        path.write_text(text.replace("{system}", "\n  ".join(system)))
        return path

    return made


def call(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{name}", timeout=10) as answer:
        return json.load(answer)


def test_calls(write, port, headrace):
    conf = write(f"rpc_endpoint 127.0.0.1:{port}", "enable_get_dump true", "workers 2")
    process = headrace("fluentd", "-c", conf, "-v")
    process.wait_for("worker is now running", count=2)
    wait_until(lambda: call(port, "config.dump") == {"ok": True}, "an answer")
    process.wait_for("dump in-memory config")
    dumped = call(port, "config.getDump")
    assert dumped["ok"]
    assert "<source>\n    @type sample" in dumped["conf"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        call(port, "nix")
    assert call(port, "plugins.flushBuffers") == {"ok": True}
    process.wait_for("SIGUSR1")
    for generation, name in ((2, "config.reload"), (3, "config.gracefulReload")):
        assert call(port, name) == {"ok": True}
        process.wait_for(f"generation {generation} serves")
    assert call(port, "processes.killWorkers") == {"ok": True}
    assert process.wait() == 0


def test_a_restart_without_downtime_by_a_call(write, port, headrace):
    process = headrace("fluentd", "-c", write(f"rpc_endpoint 127.0.0.1:{port}"))
    process.wait_for("worker is now running")
    wait_until(lambda: call(port, "processes.zeroDowntimeRestart") == {"ok": True}, "an answer")
    process.wait_for("[info]: exit")
    assert process.wait() == 0
    (old,) = re.findall(r"starting headrace-\S+ pid=(\d+)", process.output)[:1]
    (new,) = re.findall(r"the new master (\d+) serves", process.output)
    assert old != new
    for _ in range(5):
        assert call(port, "config.dump") == {"ok": True}
    assert call(port, "processes.killWorkers") == {"ok": True}
    wait_until(lambda: process.output.count("[info]: exit") == 2, "the end of the new master")


def test_an_endpoint_moves_with_a_reload(write, port, headrace):
    conf = write(f"rpc_endpoint 127.0.0.1:{port}")
    process = headrace("fluentd", "-c", conf)
    process.wait_for("worker is now running")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        other = sock.getsockname()[1]
    write(f"rpc_endpoint 127.0.0.1:{other}")
    wait_until(lambda: call(port, "config.reload") == {"ok": True}, "an answer")
    process.wait_for("generation 2 serves")
    with pytest.raises(OSError, match="refused"):
        call(port, "config.dump")
    assert call(other, "processes.interruptWorkers") == {"ok": True}
    assert process.wait() == 0


def test_an_endpoint_that_is_taken_is_told_by_check(write, headrace):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        conf = write(f"rpc_endpoint 127.0.0.1:{taken.getsockname()[1]}")
        done = headrace.run("headrace", "check", conf)
    assert "Address already in use" in done.stdout + done.stderr


def test_the_log_of_the_configuration(write, prefix, headrace):
    log = prefix / "logs" / "engine.log"
    conf = write(
        "umask 027", "<log>", f"  path {log}", "  format json", "  time_format %Y", "  rotate_size 100m", "</log>"
    )
    process = headrace("fluentd", "-c", conf)
    wait_until(lambda: log.exists() and "worker is now running" in log.read_text(), "a line")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (running,) = [line for line in lines if "now running" in line["message"]]
    assert set(running) == {"time", "level", "message", "worker_id"}
    assert len(running["time"]) == 4
    assert process.stop() == 0
    assert json.loads(log.read_text().splitlines()[-1])["message"] == "exit"


def test_the_configuration_is_logged_at_the_start_without_secrets(write, headrace):
    text = CONF.replace("@type null", "@type http\n  endpoint http://127.0.0.1:1/\n  tls_private_key_passphrase sesame")
    conf = write("workers 1", text=text)
    done = headrace.run("fluentd", "-c", conf, "--dry-run")
    assert "using configuration file: <ROOT>" in done.stdout
    assert "tls_private_key_passphrase xxxxxx" in done.stdout
    assert "sesame" not in done.stdout
    assert (
        "using configuration file"
        not in headrace.run("fluentd", "-c", conf, "--dry-run", "--suppress-config-dump").stdout
    )
    write("suppress_config_dump true", text=text)
    assert "using configuration file" not in headrace.run("fluentd", "-c", conf, "--dry-run").stdout


def test_the_command_line_wins(write, headrace):
    conf = write("emit_error_log_interval 1", "umask 022")
    flags = ("--emit-error-log-interval", "5", "--suppress-repeated-stacktrace", "false", "--umask", "027")
    done = headrace.run("fluentd", "-c", conf, "--dry-run", "--enable-size-metrics", *flags)
    assert done.returncode == 0, done.stdout
    for line in (
        "emit_error_log_interval 5",
        "suppress_repeated_stacktrace false",
        'umask "27"',
        "enable_size_metrics true",
    ):
        assert line in done.stdout
    assert "emit_error_log_interval 1" not in done.stdout


def test_further_files(write, prefix, headrace):
    folder = prefix / "conf.d"
    (folder / "deep").mkdir(parents=True)
    for name in ("b.conf", "deep/a.conf"):
        (folder / name).write_text(f"<source>\n@type sample\n@id {name[0]}\ntag x\n</source>\n")
    (folder / "ignored.txt").write_text("<nonsense")
    conf = write(f"config_include_dir {folder}")
    done = headrace.run("fluentd", "-c", conf, "--dry-run")
    assert done.returncode == 0, done.stdout
    assert done.stdout.index("@id b") < done.stdout.index("@id d")
    write("workers 1")
    assert "@id b" not in headrace.run("fluentd", "-c", conf, "--dry-run").stdout
    done = headrace.run("fluentd", "-c", conf, "--dry-run", env={"FLUENT_CONFIG_INCLUDE_DIR": str(folder)})
    assert "@id b" in done.stdout
    (folder / "broken.conf").write_text("<source>\n@type nothing_of_the_kind\n</source>\n")
    write(f"config_include_dir {folder}")
    done = headrace.run("headrace", "check", conf)
    assert done.returncode != 0
    assert "broken.conf:1" in done.stdout + done.stderr


def test_a_pause_before_a_worker_is_started_again(write, headrace):
    process = headrace("fluentd", "-c", write("restart_worker_interval 3600"))
    process.wait_for("starting worker pid=")
    process.wait_for("worker is now running")
    worker = int(process.output.split("starting worker pid=")[1].split()[0])
    os.kill(worker, signal.SIGKILL)
    process.wait_for("next try in 3600 s")
    assert process.output.count("starting worker pid=") == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["rpc_endpoint nowhere"], '"nowhere" is no HOST:PORT'),
        (["<log>", "format xml", "</log>"], '"format"'),
        (["<log>", "rotate_age often", "</log>"], '"rotate_age"'),
        (["<metrics>", "@type prometheus", "</metrics>"], '"@type"'),
        (["with_source_only true"], "send USR2"),
        (["<counter_server>", "</counter_server>"], "without a server"),
        (["umask 9"], "must be octal"),
    ],
)
def test_what_is_refused(write, headrace, lines, message):
    done = headrace.run("headrace", "check", write(*lines))
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


FLUSHED = """
<system>
  {system}
</system>
<source>
  @type http
  bind 127.0.0.1
  port PORT
</source>
<match **>
  @type file
  path FOLDER/out/${tag}
  append true
  <format>
    @type json
  </format>
  <buffer tag>
    @type file
    path FOLDER/buffer
    flush_mode interval
    flush_interval 1h
  </buffer>
</match>
<label @FLUENT_LOG>
  <match **>
    @type null
  </match>
</label>
"""


def test_flush_and_kill_delivers_what_is_buffered(write, port, prefix, headrace):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        rpc = sock.getsockname()[1]
    conf = write(
        f"rpc_endpoint 127.0.0.1:{rpc}", text=FLUSHED.replace("PORT", str(port)).replace("FOLDER", str(prefix))
    )
    process = headrace("fluentd", "-c", conf)
    process.wait_for("worker is now running")
    for number in range(20):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/t{number}", data=b'json={"n":1}')
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
    assert not (prefix / "out").exists()
    assert call(rpc, "processes.flushBuffersAndKillWorkers") == {"ok": True}
    assert process.wait() == 0
    assert len(list((prefix / "out").glob("t*"))) == 20
