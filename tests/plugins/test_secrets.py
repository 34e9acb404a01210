"""Secrets are never shown: not in messages about a configuration, not in dumps of it, not by what runs with it."""

from __future__ import annotations

import signal
import subprocess

import pytest

from headrace.conf.declare import declared_params, declared_sections
from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.errors import ConfError
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.dump import conf_text
from headrace.plugins.registry import PREFIXES, lookup, names
from headrace.testing.plugin import free_ports

MARKER = "s3cr3t-MARKER-0xC0FFEE"
_SECTIONS = {"input": "source", "output": "match", "filter": "filter"}


def found(cls, path=()):
    """(path of sections, name of the parameter) of every secret parameter."""
    for item in declared_params(cls):
        if item.secret and not item.key.endswith("_file"):  # where a secret is kept may be told
            for key in item.keys:
                yield path, key
    for section in declared_sections(cls):
        if section.cls is not None and len(path) < 3:
            yield from found(section.cls, (*path, section.key))


def all_secrets():
    for kind in PREFIXES:
        for name in names(kind):
            try:
                cls = lookup(kind, name)
            except (ConfError, ImportError):  # not built, or its extra is not installed
                continue
            for path, key in found(cls):
                yield pytest.param(kind, name, path, key, id=".".join([kind, name, *path, key]))


def conf(kind: str, name: str, path: tuple[str, ...], lines: list[str]) -> str:
    inside = "\n".join(lines)
    for section in reversed(path):
        inside = f"<{section}>\n{inside}\n</{section}>"
    inside = f"@type {name}\n{inside}"
    if kind in _SECTIONS:
        section = _SECTIONS[kind]
        return f"<{section}{' **' if kind != 'input' else ''}>\n{inside}\n</{section}>\n"
    inner = {"parser": "parse", "formatter": "format", "sd": "service_discovery"}.get(kind, kind)
    return f"<source>\n@type sample\n<{inner}>\n{inside}\n</{inner}>\n</source>\n"


def told(text: str) -> str:
    """Everything that is said about a configuration, and its dump."""
    problems = Problems()
    tree = parse(text, "x.conf", env={}, hostname="h", worker_id="0")
    try:
        build_pipeline(tree, lookup=lookup, problems=problems)
    except ConfError as error:
        problems.errors.append(error)
    lines = [f"{error} {error.hint}" for _level, error in problems.findings()]
    return "\n".join([*lines, conf_text(tree, lookup)])


def test_there_are_secrets():
    assert len(list(all_secrets())) > 20


@pytest.mark.parametrize(("kind", "name", "path", "key"), list(all_secrets()))
def test_no_message_and_no_dump_shows_a_secret(kind, name, path, key):
    for lines in (
        [f"{key} {MARKER}"],
        [f"{key} {MARKER}", f"{key} {MARKER}2"],
        [f"{key} {MARKER}", "no_such_parameter 1"],
        [f'{key} "{MARKER}\\0"'],
        [f'{key} {{"{MARKER}": ["{MARKER}"]}}'],
    ):
        assert MARKER not in told(conf(kind, name, path, lines)), lines


RUNNING = f"""
<system>
  log_level trace
  rpc_endpoint 127.0.0.1:RPC
  enable_get_dump true
</system>
<source>
  @type monitor_agent
  bind 127.0.0.1
  port MONITOR
  include_config true
  include_retry true
</source>
<source>
  @type forward
  bind 127.0.0.1
  port FORWARD
  <security>
    self_hostname here
    shared_key {MARKER}-forward
    user_auth true
    <user>
      username u
      password {MARKER}-user
    </user>
  </security>
</source>
<source>
  @type sample
  sample {{"a":1}}
  tag t
  rate 20
</source>
<match t>
  @type copy
  <store>
    @type http
    @id http
    endpoint http://127.0.0.1:1/x
    <auth>
      method basic
      username u
      password {MARKER}-basic
    </auth>
    <buffer>
      flush_interval 0.1s
      retry_wait 0.1s
      retry_max_times 2
    </buffer>
  </store>
  <store>
    @type forward
    @id forward
    <security>
      self_hostname here
      shared_key {MARKER}-wrong
    </security>
    <server>
      host 127.0.0.1
      port FORWARD
      username u
      password {MARKER}-sent
    </server>
    <buffer>
      flush_interval 0.1s
      retry_wait 0.1s
      retry_max_times 2
    </buffer>
  </store>
</match>
"""


def fetch(url: str) -> str:
    done = subprocess.run(["curl", "-s", "--noproxy", "*", "--max-time", "5", url], capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")


def test_nothing_that_runs_shows_a_secret(headrace, prefix):
    rpc, monitor, forward = free_ports(3)
    text = RUNNING.replace("RPC", str(rpc)).replace("MONITOR", str(monitor)).replace("FORWARD", str(forward))
    path = prefix / "fluent.conf"
    path.write_text(text)
    process = headrace("fluentd", "-c", path, "-vv")
    process.wait_for("worker is now running")
    process.wait_for("failed to flush", count=2)
    shown = [
        fetch(f"http://127.0.0.1:{monitor}/api/{name}")
        for name in ("plugins.json", "config.json", "plugins", "config", "plugins.json?debug=1&with_ivars=true")
    ]
    assert all(shown), shown
    shown += [fetch(f"http://127.0.0.1:{rpc}/api/config.{name}") for name in ("dump", "getDump")]
    shown.append(headrace.run("headrace", "stats", process.pid, "--json").stdout)
    process.send(signal.SIGCONT)
    process.wait_for("dump written to")
    shown += [dump.read_text() for dump in (prefix / "run").glob("*/dump-*.txt")]
    process.send(signal.SIGHUP)
    process.wait_for("generation 2 serves")
    path.write_text(text.replace("<security>", "<securty>", 1))
    process.send(signal.SIGHUP)
    process.wait_for("reload failed")
    check = headrace.run("headrace", "check", path)
    shown += [check.stdout, check.stderr]
    ran = headrace.run("fluentd", "-c", path, "--dry-run", "-vv")
    shown += [ran.stdout, ran.stderr]
    assert process.stop() == 0
    shown.append(process.output)
    for one in shown:
        assert MARKER not in one, one[max(one.index(MARKER) - 300, 0) : one.index(MARKER) + 100]
