"""The headline configurations with a real Fluentd at either end."""

from __future__ import annotations

import pytest
import wire_rig as rig

from headrace.testing.plugin import need_fluentd
from headrace.testing.process import wait_until

pytestmark = [pytest.mark.fluentd, pytest.mark.slow]

PATIENCE = 60.0  # Ruby starts slowly on a busy machine


def start_fluentd(launcher, conf):
    process = launcher.start([*need_fluentd(), "-c", str(conf)])
    process.wait_for("worker is now running", timeout=PATIENCE)
    return process


def test_fluentd_sends_to_our_receiver(prefix, port, headrace):
    need_fluentd()
    (prefix / "receiver.conf").write_text(rig.RECEIVER.replace("9000", str(port)))
    (prefix / "sender.conf").write_text(rig.SENDER.replace("9000", str(port)))
    receiver = headrace("fluentd", "-c", prefix / "receiver.conf")
    rig.wait_listens(port, receiver)
    theirs = start_fluentd(headrace, prefix / "sender.conf")
    receiver.wait_for("count:", count=2, timeout=PATIENCE)
    figures = rig.stats(headrace, receiver)
    theirs.end()
    source = rig.plugin(figures, "input_http")
    assert source["refused"] == {}
    assert source["events"] == source["requests"] > 0
    assert source["accepted"] <= 33, "its connections were kept"
    assert figures["pipeline"]["unmatched"] == {"@ROOT": 0}
    assert receiver.stop() == 0


def test_our_sender_to_fluentd(prefix, port, headrace):
    """Fluentd itself has no flowcounter_simple: its receiver prints."""
    need_fluentd()
    receiver = rig.RECEIVER.replace("9000", str(port)).replace("flowcounter_simple\n  unit second", "stdout")
    (prefix / "receiver.conf").write_text(receiver)
    (prefix / "sender.conf").write_text(rig.SENDER.replace("9000", str(port)).replace("rate 5000", "rate 500"))
    theirs = start_fluentd(headrace, prefix / "receiver.conf")
    sender = headrace("headrace", "run", prefix / "sender.conf")

    def arrived():
        return theirs.output.count('{"hello":"world"}')

    wait_until(lambda: arrived() >= 1000, "a thousand events", PATIENCE)
    figures = rig.plugin(rig.stats(headrace, sender), "output_http")
    assert sender.stop() == 0
    connections = figures["connections"]
    assert 1 <= connections["opened"] <= 32
    assert connections["reused"] > 900
    assert connections["resent"] == connections["discarded_stale"] == 0
    assert "failed to flush" not in sender.output
    assert theirs.running
