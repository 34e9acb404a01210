"""A launcher for all tests of a module that share one process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.process import Launcher


@pytest.fixture(scope="module")
def shared() -> Iterator[Launcher]:
    """A launcher whose folder and processes live as long as the module's tests."""
    folder = Path(tempfile.mkdtemp(prefix="hrw-", dir="/tmp"))
    folder.chmod(0o755)  # workers of a test run by root may be somebody else
    launcher = Launcher(folder)
    try:
        yield launcher
    finally:
        launcher.end_all()
        shutil.rmtree(folder, ignore_errors=True)
