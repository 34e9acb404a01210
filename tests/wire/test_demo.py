"""`make demo`: what it prints, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import wire_rig as rig


def processes_of(folder):
    """Command lines of processes that have `folder` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_demo():
    with tempfile.TemporaryDirectory(prefix="hrd-", dir="/tmp") as folder:
        demo = subprocess.run(
            [sys.executable, rig.EXAMPLES / "demo.py", "--seconds", "3"],
            env={**os.environ, "TMPDIR": folder, "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        assert demo.returncode == 0, demo.stdout
        assert os.listdir(folder) == []
        assert processes_of(folder) == []
    summary = demo.stdout[demo.stdout.index("What it comes to") :]
    rows = {
        cells[0]: cells[1:]
        for line in summary.splitlines()
        if len(cells := [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]) == 4
    }
    off, on, ratio = rows["events a second"]
    assert int(off.replace(",", "")) > 0
    assert int(on.replace(",", "")) > 0
    assert re.fullmatch(r"\d+\.\dx", ratio)
    off, on, _ = (cell.replace(",", "") for cell in rows["connections opened"])
    assert int(off) > 32
    assert 1 <= int(on) <= 32
    assert rows["longest chain of a cosocket"][1] == "1"
    flushed, unflushed, _ = (cell.replace(",", "") for cell in rows["round trips a second"])
    assert int(flushed) > 0
    assert int(unflushed) > 0
