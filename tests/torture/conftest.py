"""Torture: a short form in every run of the tests, the whole with TORTURE=full (`make torture`).

TORTURE_NAME=NUMBER overrides one of the numbers; `make torture` prints a table of what was seen.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torture_rig import Nursery

FULL = os.environ.get("TORTURE") == "full"
_rows: list[tuple[str, str]] = []


class Scale:
    """The numbers of a run."""

    full = FULL

    def __call__(self, name: str, short: int, full: int) -> int:
        """TORTURE_NAME, or the number of this form."""
        return int(os.environ.get(f"TORTURE_{name.upper()}") or (full if FULL else short))


class Seen:
    """What a test has seen, for the table; and its progress."""

    def __init__(self, name: str, write: Any) -> None:
        self.name = name
        self._write = write
        self._told = time.monotonic()

    def __call__(self, text: object) -> None:
        """Add a line to the table."""
        _rows.append((self.name, str(text)))

    def progress(self, done: int, total: int, text: object = "") -> None:
        """Tell how far it is, every few seconds, in the long form."""
        now = time.monotonic()
        if FULL and now - self._told > 5:
            self._told = now
            self._write(f"  {self.name}: {done} of {total} {text}")


@pytest.fixture
def scale() -> Scale:
    """The numbers of this run."""
    return Scale()


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Seen:
    """Where a test tells what it saw."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    capture = request.config.pluginmanager.get_plugin("capturemanager")

    def write(line: str) -> None:
        if reporter is None or capture is None:
            return
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)

    return Seen(request.node.name.removeprefix("test_"), write)


@pytest.fixture
async def nursery(prefix: Path) -> Any:
    """Starts nodes; all of them end with the test."""
    async with Nursery(prefix) as started:
        yield started


@pytest.fixture
def tmpfs(prefix: Path) -> Iterator[Path]:
    """A file system of 8 MB; skips where this process may not mount."""
    folder = prefix / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.xfail(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table."""
    if not (FULL and _rows):
        return
    terminalreporter.section("what was seen")
    width = max(len(name) for name, _ in _rows)
    for name, text in _rows:
        terminalreporter.write_line(f"{name:<{width}}  {text}")
