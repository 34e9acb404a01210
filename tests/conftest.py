"""What every test may use: the plugin that ships with headrace, and the rule about skipped peers."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

pytest_plugins = ["headrace.testing.plugin"]
FLUENTD = "HEADRACE_PEER_FLUENTD"
NO_SKIP = "HEADRACE_NO_SKIP"


_left_out = 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with a real Fluentd run where the environment gives its command; elsewhere they are left out."""
    global _left_out  # noqa: PLW0603 - one count a session
    if os.environ.get(FLUENTD):
        return
    out = [item for item in items if item.get_closest_marker("fluentd")]
    _left_out = len(out)
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if not item.get_closest_marker("fluentd")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly what was left out."""
    if _left_out:
        terminalreporter.write_line(f"{_left_out} tests with a real Fluentd are left out: {FLUENTD} does not name one")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every peer is installed (CI), a test that skipped itself has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(NO_SKIP) == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped although {NO_SKIP}=1: {reason}"
    return report
