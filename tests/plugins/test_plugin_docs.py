"""docs/plugins.md and examples/package: what stands there is the same, and runs as it stands."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()
PACKAGE = ROOT / "examples" / "package"
BLOCKS = dict(re.findall(r"^`([\w.]+)`:\n\n```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder(prefix):
    """The files of the page."""
    for name, text in BLOCKS.items():
        (prefix / name).write_text(text)
    return prefix


def test_the_page_shows_the_files_of_the_package():
    files = {path.name: path.read_text() for path in (PACKAGE / "headrace_examples").glob("[a-z]*.py")}
    files["test_plugins.py"] = (PACKAGE / "tests" / "test_plugins.py").read_text()
    assert {name: text for name, text in BLOCKS.items() if name.endswith(".py")} == files
    assert {name.partition("_")[0] for name in files} == {"in", "out", "filter", "parser", "formatter", "buf", "test"}


def test_the_plugins_work_together(folder, headrace):
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


def test_an_installed_package_needs_no_folder(tmp_path, headrace):
    source = shutil.copytree(PACKAGE, tmp_path / "source")
    target = tmp_path / "site"
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=60)
    (tmp_path / "fluent.conf").write_text(
        "<source>\n@type load\n</source>\n<match **>\n@type tcp_lines\nport 1\n</match>"
    )
    env = {**os.environ, "PYTHONPATH": str(target)}
    command = [sys.executable, "-m", "headrace", "check", str(tmp_path / "fluent.conf")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_its_tests_hold():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", f"pythonpath={PACKAGE}", "tests"],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


def test_the_entry_points_are_those_of_the_package():
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    points = tomllib.loads(text)["project"]["entry-points"]
    assert points == tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]
