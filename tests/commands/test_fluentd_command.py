"""headrace-fluentd: fluentd's flags."""

from __future__ import annotations

import os
import re
import signal

import pytest

from headrace.commands.fluentd import log_level, parser
from headrace.testing.process import wait_until

CONF = """\
<source>
  @type sample
  tag t
  rate 10
  sample {"text":"#{worker_id}"}
</source>
<match **>
  @type stdout
</match>
"""


@pytest.fixture
def conf(prefix):
    path = prefix / "fluent.conf"
    path.write_text(CONF)
    return path


def test_dry_run(conf, headrace):
    done = headrace.run("fluentd", "-c", conf, "--dry-run")
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \[info\]: .*", done.stdout.splitlines()[0])
    assert done.stdout.endswith("[info]: finished dry run mode\n")


def test_dry_run_of_a_wrong_file_names_the_line(conf, headrace):
    conf.write_text(CONF.replace("stdout", "stdoud"))
    done = headrace.run("fluentd", "-c", conf, "--dry-run")
    assert done.returncode == 1
    assert "[error]: config error: " in done.stdout
    assert f"{conf}:" in done.stdout
    assert 'did you mean "stdout"?' in done.stdout


def test_an_unknown_parameter_is_a_warning(conf, headrace):
    conf.write_text(CONF.replace("rate 10", "raet 10"))
    done = headrace.run("fluentd", "-c", conf, "--dry-run")
    assert done.returncode == 0
    assert "[warn]: " in done.stdout
    assert "raet" in done.stdout


def test_runs_and_stops(conf, headrace):
    process = headrace("fluentd", "-c", conf, "-v")
    process.wait_for('t: {"text":"0"}')
    assert process.stop() == 0
    assert "[info]: #0 worker is now running worker=0" in process.output


def test_workers_have_their_numbers(conf, headrace):
    process = headrace("fluentd", "-c", conf, "--workers", 2)
    process.wait_for("#1 worker is now running worker=1")
    process.wait_for('t: {"text":"0"}')
    assert process.stop(signal.SIGINT) == 0


def test_no_supervisor_is_one_process(conf, headrace):
    process = headrace("fluentd", "-c", conf, "--no-supervisor")
    process.wait_for(f"pid={process.pid} ")
    process.wait_for('t: {"text":"0"}')
    assert process.stop() == 0
    assert headrace.run("fluentd", "-c", conf, "--no-supervisor", "--workers", 2).returncode == 2


@pytest.mark.parametrize("end", ["\n", "\\n"])
def test_fluent_conf_of_the_environment_and_inline_config(conf, headrace, end):
    inline = '<source>\n@type sample\ntag more\nrate 10\nsample {"k":"v"}\n</source>'.replace("\n", end)
    process = headrace("fluentd", "-i", inline, env={"FLUENT_CONF": str(conf)})
    process.wait_for('more: {"k":"v"}')
    assert process.stop() == 0


def test_daemon_with_log_and_pid_file(conf, prefix, headrace):
    log, pid_file = prefix / "f.log", prefix / "f.pid"
    done = headrace.run("fluentd", "-c", conf, "-o", log, "-d", pid_file)
    assert done.returncode == 0, done.stdout
    pid = int(pid_file.read_text())
    try:
        wait_until(lambda: "worker is now running" in log.read_text())
        log.rename(prefix / "f.log.1")
        os.kill(pid, signal.SIGUSR1)
        wait_until(log.exists)
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not pid_file.exists())
    wait_until(lambda: "[info]: exit" in log.read_text())


@pytest.mark.parametrize("signal_number", [signal.SIGHUP])
def test_reload(conf, headrace, signal_number):
    process = headrace("fluentd", "-c", conf)
    process.wait_for('t: {"text":"0"}')
    conf.write_text(CONF.replace("#{worker_id}", "again"))
    process.send(signal_number)
    process.wait_for('t: {"text":"again"}')
    conf.write_text("<match")
    process.send(signal_number)
    process.wait_for("reload failed, the old configuration stays")
    assert process.stop() == 0


def test_setup_installs_a_sample_that_is_right(prefix, headrace):
    folder = prefix / "new"
    done = headrace.run("fluentd", "--setup", folder)
    assert (done.returncode, done.stdout) == (0, f"Installed {folder}/fluent.conf.\n")
    assert headrace.run("fluentd", "--setup", folder).stdout == f"{folder}/fluent.conf already exists.\n"
    checked = headrace.run("fluentd", "-c", folder / "fluent.conf", "--dry-run")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--foo"], "error: "),
        (["--use-v0-config"], "only the v1 format"),
        (["--log-rotate-age", "yearly"], "daily, weekly, monthly or a number"),
        (["--with-source-only"], "USR2"),
        (["--under-supervisor"], "by the master only"),
        (["-r", "no_such_module_of_anybody"], "no_such_module_of_anybody"),
        (["--conf-encoding", "latin-1"], "only utf-8"),
    ],
)
def test_what_is_refused_says_why(headrace, args, text):
    done = headrace.run("fluentd", *args)
    assert done.returncode == 1
    assert text in done.stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-g", "Gemfile", "-G", "vendor"], "-g (headrace runs no Ruby: gems are not used), -G ("),
        (["--gemfile=Gemfile", "--gem-path=vendor"], "--gemfile (headrace runs no Ruby"),
        (["--strict-config-value"], "always read strictly"),
        (["--use-v1-config", "--suppress-config-dump"], "the only one"),
        (["--log-event-verbose"], "are not emitted"),
        (["--enable-input-metrics", "--disable-input-metrics"], "headrace stats"),
        (["--disable-shared-socket"], "always share"),
        (["-x", "name"], "Windows"),
        (["--signame", "name"], "Windows"),
        (["--log-rotate-age", "5", "--log-rotate-size", "1000"], "no effect without a log file"),
    ],
)
def test_what_is_always_so_is_accepted_with_one_warning(conf, headrace, args, text):
    done = headrace.run("fluentd", "-c", conf, *args, "--dry-run")
    assert done.returncode == 0, done.stdout
    (warning,) = [line for line in done.stdout.splitlines() if "[warn]" in line]
    assert text in warning


def test_the_flags_of_one_run_are_not_those_of_the_next():
    assert parser().parse_args(["-g", "x"]).without_effect
    assert not parser().parse_args([]).without_effect


def test_a_folder_of_plugins(conf, prefix, headrace):
    folder = prefix / "plugins"
    folder.mkdir()
    (folder / "out_x.rb").write_text("")
    (folder / "out_shout.py").write_text(
        "from headrace.pipeline.plugin import Output\n"
        "class ShoutOutput(Output):\n"
        "    def process(self, tag, batch):\n"
        "        print('SHOUT', tag, flush=True)\n"
    )
    conf.write_text(CONF.replace("stdout", "shout"))
    for args, env in (["-p", folder], {}), ([], {"FLUENT_PLUGIN": str(folder)}):
        process = headrace("fluentd", "-c", conf, *args, env=env)
        process.wait_for("SHOUT t")
        assert f"plugins of {folder} are not loaded, for they are Ruby: out_x.rb" in process.output
        assert process.stop() == 0
    conf.write_text(CONF.replace("stdout", "x"))
    done = headrace.run("fluentd", "-c", conf, "-p", folder, "--dry-run")
    assert done.returncode == 1
    assert f'output plugin "x" is Ruby: {folder}/out_x.rb' in done.stdout


def test_a_log_that_is_full_begins_anew(conf, prefix, headrace):
    log = prefix / "logs" / "f.log"
    process = headrace("fluentd", "-c", conf, "-o", log, "--log-rotate-size", "2000", "--log-rotate-age", "3")
    wait_until((log.parent / "f.log.1").exists, timeout=60)
    wait_until(lambda: 't: {"text":"0"}' in log.read_text())
    assert sorted(path.name for path in log.parent.iterdir()) == ["f.log", "f.log.0", "f.log.1"]
    assert (log.parent / "f.log.0").stat().st_size > 2000
    assert process.stop() == 0
    assert log.read_text().endswith("[info]: exit\n")
    assert process.output == ""


def test_show_plugin_config(headrace):
    done = headrace.run("fluentd", "--show-plugin-config", "input:http")
    assert done.returncode == 0
    assert "body_size_limit" in done.stdout


def test_levels_of_v_and_q():
    assert [log_level(v, q) for v, q in [(0, 0), (1, 0), (2, 0), (5, 0), (0, 1), (0, 2), (0, 9)]] == [
        None,
        "debug",
        "trace",
        "trace",
        "warn",
        "error",
        "error",
    ]
