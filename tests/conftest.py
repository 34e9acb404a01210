"""What every test may use: the plugin that ships with headrace, and the rule about skipped peers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import settings

pytest_plugins = ["headrace.testing.plugin"]
NO_SKIP = "HEADRACE_NO_SKIP"
FUZZ = "HEADRACE_FUZZ"

OPTIONAL = {
    "fluentd": ("HEADRACE_PEER_FLUENTD", "with a real Fluentd"),
    "checkouts": ("HEADRACE_LUA_LIBRARIES", "of Lua libraries that no package brings"),
}
"""Marker -> the variable that says where a peer is which cannot be installed, and what its tests are."""

_left_out: dict[str, int] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with such a peer run where the environment says where it is; elsewhere they are left out."""
    _more_examples(items)
    for marker, (variable, _) in OPTIONAL.items():
        if os.environ.get(variable):
            continue
        out = [item for item in items if item.get_closest_marker(marker)]
        _left_out[marker] = len(out)
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if not item.get_closest_marker(marker)]


def _more_examples(items: list[pytest.Item]) -> None:
    """`make fuzz`: each generated test has so many times its own number of examples, and no time limit for one."""
    times = int(os.environ.get(FUZZ, "1"))
    if times == 1:
        return
    for item in items:
        test = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            more = settings(own, max_examples=own.max_examples * times, deadline=None)
            getattr(test, "__func__", test)._hypothesis_internal_use_settings = more


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly what was left out."""
    for marker, count in _left_out.items():
        if count:
            variable, what = OPTIONAL[marker]
            terminalreporter.write_line(f"{count} tests {what} are left out: {variable} is not set")


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


@pytest.fixture(scope="session", autouse=True)
def _dead_letters() -> Generator[None]:
    """No test leaves its dead letters where pipelines of this machine have theirs."""
    folder = tempfile.mkdtemp(prefix="headrace-letters-")
    os.chmod(folder, 0o777)  # workers of a test run by root may be somebody else
    os.environ["HEADRACE_DEAD_LETTERS"] = folder
    yield
    del os.environ["HEADRACE_DEAD_LETTERS"]
    shutil.rmtree(folder, ignore_errors=True)
