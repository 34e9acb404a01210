"""What every test may use: the plugin that ships with headrace, and the rule about skipped peers."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

pytest_plugins = ["headrace.testing.plugin"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every peer is installed, a test that skipped itself has failed; only Fluentd may be missing."""
    from headrace.testing.plugin import FLUENTD, NO_SKIP  # noqa: PLC0415 - pytest loads the plugin first

    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(NO_SKIP) == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if FLUENTD not in reason and "fluentd" not in reason.lower():
            report.outcome = "failed"
            report.longrepr = f"skipped although {NO_SKIP}=1: {reason}"
    return report
