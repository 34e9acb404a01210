"""docs/plugins.md: what stands there is run as it stands."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


@pytest.fixture
def folder(prefix):
    """The files of the page."""
    found = re.findall(r"^`([\w.]+)`:\n\n```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 5
    for name, text in found:
        (prefix / name).write_text(text)
    return prefix


def test_the_three_plugins_work_together(folder, headrace):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        conf = folder / "fluent.conf"
        conf.write_text(conf.read_text().replace("9999", str(server.getsockname()[1])))
        checked = headrace.run("headrace", "check", "--plugin", ".", "fluent.conf")
        assert checked.returncode == 0, checked.stderr
        process = headrace("headrace", "run", "--plugin", ".", "fluent.conf")
        peer, _ = server.accept()
        with peer, peer.makefile() as lines:
            line = lines.readline()
    assert re.fullmatch(r'\{"tag": "load", "load1": [\d.]+, "load5": [\d.]+, "load15": "\*\*\*"\}\n', line)
    assert process.stop() == 0


def test_the_manual_of_one(folder, headrace):
    shown = headrace.run("headrace", "plugins", "--plugin", ".", "output:tcp_lines").stdout
    assert "port (integer; required)  Port to connect to" in shown
    assert " tcp_lines" in headrace.run("headrace", "plugins", "--plugin", ".").stdout


def test_its_tests_hold(folder):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plugins.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_entry_point_is_toml():
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert tomllib.loads(text)["project"]["entry-points"]["headrace.plugins"]
