"""Broken fluent.confs: `headrace check` names file and line of each, and never shows a traceback."""

from __future__ import annotations

import json
import socket

import pytest

from headrace.commands import fluentd
from headrace.commands.main import main

NULL = "<match **>\n@type null\n</match>\n"
HTTP = "<match **>\n@type http\nendpoint http://127.0.0.1:9/\n{}\n</match>\n"
SOURCE = "<source>\n@type http\nport 0\n{}\n</source>\n" + NULL

CASES = {
    "a NUL": ("<match **>\n@type file\npath /tmp/a\0b\n</match>\n", 3, "NUL"),
    "an escaped NUL": ('<match **>\n@type file\npath "/tmp/a\\0b"\n</match>\n', 1, "null byte"),
    "UTF-16": ("<match **>\n@type null\n</match>\n".encode("utf-16"), 1, "UTF-16"),
    "a type that is not UTF-8": (b"<match **>\n@type \xff\n</match>\n", 1, "unknown output plugin"),
    "a file that is not there": ("@include nope.conf\n" + NULL, 1, "no such file"),
    "a circle": ("@include t.conf\n", 1, "circle"),
    "negative time": (HTTP.format("open_timeout -1"), 4, "negative"),
    "infinite time": (HTTP.format("open_timeout inf"), 4, "time such as"),
    "too many lanes": (HTTP.format("<buffer>\nflush_thread_count 99999999999\n</buffer>"), 5, "at most"),
    "too many workers": ("<system>\nworkers 100000\n</system>\n" + NULL, 2, "at most"),
    "too many events": ("<source>\n@type sample\ntag a\nrate 1" + "0" * 30 + "\n</source>\n" + NULL, 4, "per second"),
    "a header that ends the head": (HTTP.format('headers {"a":"b\\r\\nX: y"}'), 4, "line break"),
    "a content type that ends the head": (HTTP.format('content_type "a\\r\\nX: y"'), 4, "line break"),
    "a buffer below a file": (HTTP.format("<buffer>\n@type file\npath /etc/hostname/b\n</buffer>"), 6, "/etc/hostname"),
    "no backlog": (SOURCE.format("backlog -1"), 4, "at least 1"),
    "no body": (SOURCE.format("body_size_limit -1"), 4, "at least 1"),
    "versions upside down": (
        SOURCE.format("<transport tls>\ninsecure true\nmin_version TLSv1_3\nmax_version TLS1_2\n</transport>"),
        6,
        "newer",
    ),
    "an address that is none": ("<source>\n@type http\nport 19001\nbind 999.1.1.1\n</source>\n" + NULL, 3, "host not"),
    "one address twice": ("<source>\n@type http\nport 19003\n</source>\n" * 2 + NULL, 7, "already listened"),
    "one port twice": (
        "<source>\n@type http\nport 19003\nbind 127.0.0.1\n</source>\n<source>\n@type http\nport 19003\n</source>\n"
        + NULL,
        8,
        "already listened",
    ),
}


@pytest.fixture
def broken(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_RUN_DIR", str(tmp_path / "run"))

    def write(text):
        path = tmp_path / "t.conf"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.mark.parametrize("name", CASES)
def test_file_line_and_reason(broken, capsys, name):
    text, line, reason = CASES[name]
    path = broken(text)
    assert main(["check", "--type", "fluent", path]) == 1
    said = capsys.readouterr().err
    errors = [row for row in said.splitlines() if row.startswith("headrace: error: ")]
    assert len(errors) == 1, said
    assert f"{path}:{line}" in errors[0]
    assert reason in errors[0]
    assert "Traceback" not in said
    assert main(["check", "--type", "fluent", "--json", path]) == 1
    (found,) = [row for row in json.loads(capsys.readouterr().out) if row["level"] == "error"]
    json.dumps(found, ensure_ascii=False).encode()
    assert (found["file"], found["line"]) == (path, line)


def test_consequences_are_not_reported_beside_their_cause(broken, capsys):
    for text in (
        "<match a>\n@type relabel\n@label @X\n</match>\n",
        "<match **>\n@type copy\n<store>\n@type foo\n</store>\n</match>\n",
        HTTP.format("<format>\n@type jsn\n</format>"),
        "<system>\nfile_permission 999\n</system>\n" + NULL,
    ):
        assert main(["check", "--type", "fluent", broken(text)]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_port_in_use(broken, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = broken(f"<source>\n@type http\nbind 127.0.0.1\nport {taken.getsockname()[1]}\n</source>\n" + NULL)
        assert main(["check", "--type", "fluent", path]) == 1
        assert f"{path}:4 (choose another port" in capsys.readouterr().err


def test_what_fluentd_does_not_notice_is_a_warning_in_its_place(broken, capfd):
    path = broken("@include nope.conf\n<match **>\n@type null\nfoo 1\n<bar>\n</bar>\n</match>\n")
    assert fluentd.main(["--dry-run", "-c", path]) == 0
    said = capfd.readouterr().out
    assert said.count("[warn]") == 3
    assert "[error]" not in said
