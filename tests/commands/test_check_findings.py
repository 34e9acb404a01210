"""`headrace check` tells everything at once, by file and line, and nothing that only follows from something else."""

from __future__ import annotations

import json
import socket

import pytest

from headrace.commands import fluentd, nginx
from headrace.commands.main import main

BROKEN_NGINX = """\
events {}
http {
    image_filtr x;
    geoip_country /x;
    xslt_last_modified on;
    server {
        listen 99999999;
        access_log logs/x nope;
        location / {
            lissten 3;
            image_filter test;
            content_by_lua_block { ngx.sleep(1) if }
        }
        location /b {
            add_header x $unknowable;
            return 200 b;
        }
        location ~ ( { content_by_lua_block { x = } }
    }
}
"""
NGINX = [
    (3, "error", "image_filtr"),
    (4, "error", "geoip_country"),
    (5, "error", "xslt_last_modified"),
    (7, "error", "port"),
    (8, "error", "nope"),
    (10, "error", "lissten"),
    (11, "error", "image_filter"),
    (12, "warning", "failed to load"),
    (12, "warning", "ngx.sleep"),
    (15, "error", "unknowable"),
    (18, "error", "pcre2"),
    (18, "warning", "failed to load"),
]
BROKEN_FLUENT = """\
<source>
  @type sample
  bogus 1
  tag a
  @label @NOPE
</source>
<source>
  @type windows_eventlog
</source>
<match a.**>
  @type relabel
  @label @NOPE2
</match>
<match b>
  @type http
  endpoint http://127.0.0.1:1/
  open_timeout abc
  <buffer>
    flush_mode sometimes
    flush_interval abc
    flush_thread_count 0
    unk 3
  </buffer>
  <format>
    unk 4
  </format>
  <secondary>
    @type fil
  </secondary>
</match>
<match c>
  @type http
  endpoint http://127.0.0.1:1/
  bogus 1
  <buffer>
    unk 3
    flush_mode immediate
    flush_interval 3
  </buffer>
  <format>
    @type jsn
  </format>
  <secondary>
    @type null
    unk 5
  </secondary>
</match>
<match d>
  @type copy
  copy_mode x
  <store>
    @type bigquery_insert
  </store>
</match>
<source>
  @type http
  port abc
  @label @NOPE3
  <parse>
    unk 6
  </parse>
</source>
"""
FLUENT = [
    (3, "bogus"),
    (5, '"@NOPE"'),
    (7, "windows_eventlog"),
    (12, '"@NOPE2" is not'),
    (17, "open_timeout"),
    (19, "flush_mode"),
    (20, "flush_interval"),
    (21, "flush_thread_count"),
    (22, "unk"),
    (25, "unk"),
    (27, '"fil"'),
    (34, "bogus"),
    (36, "unk"),
    (38, "flush_interval"),
    (40, "jsn"),
    (45, "unk"),
    (50, "copy_mode"),
    (51, "bigquery_insert"),
    (57, "port"),
    (58, "@NOPE3"),
]


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_RUN_DIR", str(tmp_path / "run"))

    def made(name, text):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return made


def check(capsys, *paths):
    status = main(["check", "--json", *paths])
    found = json.loads(capsys.readouterr().out)
    assert status == any(row["level"] == "error" for row in found)
    return found


@pytest.fixture
def no_sleep(monkeypatch):
    """One name of the Lua API is not built, whatever is by now."""
    monkeypatch.setattr("headrace.lua.check.unbuilt", lambda: {"ngx.sleep"})


@pytest.mark.usefixtures("no_sleep")
def test_nginx_conf(write, capsys):
    found = check(capsys, write("nginx.conf", BROKEN_NGINX))
    assert [(row["line"], row["level"]) for row in found] == [(line, level) for line, level, _ in NGINX], found
    for row, (_line, _level, word) in zip(found, NGINX, strict=True):
        assert word in row["message"]
    hints = {row["line"]: row["hint"] for row in found}
    assert hints[11] == "nginx has it; headrace has not built it yet"
    assert hints[10] == 'did you mean "listen"?'
    assert '"image_filter"' in hints[3]


def test_fluent_conf(write, capsys):
    found = check(capsys, write("fluent.conf", BROKEN_FLUENT))
    assert [row["line"] for row in found] == [line for line, _ in FLUENT], found
    for row, (_line, word) in zip(found, FLUENT, strict=True):
        assert word in row["message"]
    hints = {row["line"]: row["hint"] for row in found}
    assert hints[7] == hints[51] == "Fluentd has it; headrace has not built it yet"


def test_a_syntax_error_in_one_file_does_not_hide_the_other(write, capsys):
    one = write("nginx.conf", "events {\nhttp { }\n")
    other = write("fluent.conf", "<match **>\n@type stdoot\n</match>\n")
    assert [(row["file"], row["line"]) for row in check(capsys, one, other)] == [(other, 1), (one, 3)]


def test_a_broken_pipeline_is_not_a_missing_one(write, capsys):
    one = write("nginx.conf", "events {}\nhttp { access_log pipeline:x; server { listen 18; } }\n")
    other = write("fluent.conf", "<match **>\n@type stdoot\n</match>\n")
    assert [row["file"] for row in check(capsys, one, other)] == [other]


def test_what_a_failed_directive_defines_is_not_called_unknown(write, capsys):
    for inner in (
        "log_format; server { access_log logs/x; }",
        'log_format a escape=maybe "x"; server { access_log logs/x a; }',
        'set $a; server { return 200 "$a"; }',
        "server { set $a b c; return 200 $a; }",
        'server { location ~ "(?<n>.)(" { return 200 $n; } location /x { return 200 $n; } }',
        'server { if ($uri ~ "(?<n>.)(") { return 200 $n; } }',
        "server { listen 1x; } server { listen 1y default_server; }",
        "server { listen 443 ssl; ssl_certificate; ssl_certificate_key a b; }",
    ):
        found = check(capsys, write("nginx.conf", f"events {{}}\nhttp {{ {inner} }}\n"))
        assert all("unknown" not in row["message"] or "escaping" in row["message"] for row in found), found
        assert not any("is defined" in row["message"] for row in found), found


def test_the_events_section_is_missed_beside_other_errors(write, capsys):
    found = check(capsys, write("nginx.conf", "http { foo 1; }\n"))
    assert [row["message"] for row in found] == ['unknown directive "foo"', 'no "events" section in configuration']
    (found,) = check(capsys, write("nginx.conf", "evnts { }\nhttp { }\n"))
    assert found["hint"] == 'did you mean "events"?'


@pytest.mark.usefixtures("no_sleep")
def test_names_that_are_not_built_are_warnings_everywhere(write, tmp_path, capsys):
    path = write(
        "nginx.conf",
        "error_log stderr;\npid x.pid;\nevents {}\nhttp { server { location / {\ncontent_by_lua_block { ngx.sleep(1) }\n} } }\n",
    )
    (found,) = check(capsys, path)
    assert (found["level"], found["line"]) == ("warning", 5)
    assert nginx.main(["-t", "-p", str(tmp_path), "-c", path]) == 0
    said = capsys.readouterr().err
    assert f"nginx: [warn] ngx.sleep is not built yet: nil at run time in {path}:5\n" in said


def test_fluentd_tells_all_too(write, capfd):
    path = write("fluent.conf", "<match **>\n@type http\nopen_timeout x\n<buffer>\nflush_mode y\n</buffer>\n</match>\n")
    assert fluentd.main(["--dry-run", "-c", path]) == 1
    assert capfd.readouterr().out.count("config error") == 3


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 70])
def test_listeners_of_datagrams_are_tried_as_others_are(write, capsys, host):
    text = f"<source>\n@type udp\ntag a\nport 0\nbind {host}\n<parse>\n@type none\n</parse>\n</source>\n"
    found = check(capsys, write("fluent.conf", text + "<match **>\n@type null\n</match>"))
    assert [row["message"] for row in found] == [f'host not found in "{host}:0" of the listener']


def test_a_port_of_datagrams_in_use(write, capsys):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        text = f"<source>\n@type udp\ntag a\nport {port}\nbind 127.0.0.1\n<parse>\n@type none\n</parse>\n</source>\n"
        found = check(capsys, write("fluent.conf", text + "<match **>\n@type null\n</match>"))
    assert [row["message"] for row in found] == [
        f"bind() to 127.0.0.1:{port} by UDP failed (98: Address already in use)"
    ]
