"""What is known of one node: whether heartbeats say that it lives, whether connections to it work.

Two judgements stand side by side.

*Available*: the failure detector's, fed by heartbeats and by chunks that arrive. A node that is detached is not
used at all until heartbeats have come for recover_wait; without heartbeats a node is never detached.

*The breaker*: a connection that fails, or an acknowledgement that does not come, makes the node the last to be
tried for a while (a second, doubling up to recover_wait). When that is over, one delivery tries it, and the others
wait for its outcome. A node that failed DOWN_AFTER times in a row counts as lost for the standby nodes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.out_forward.detector import FailureDetector

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.tls_config import TlsConfig
    from headrace.pipeline.discovery import Service
    from headrace.plugins.out_forward.addresses import NodeNames

DOWN_AFTER: Final = 3
FIRST_HOLD: Final = 1.0
"""Seconds after the first failure for which others are tried before the node."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The parameters of failure detection, in seconds. heartbeats: whether there are any."""

    heartbeats: bool = True
    interval: float = 1.0
    recover_wait: float = 10.0
    hard_timeout: float = 60.0
    phi: bool = True
    phi_threshold: float = 16.0


@dataclass(slots=True)
class Counters:
    """What became of a node's connections and chunks. They only grow.

    sent, sent_events, sent_bytes: chunks written as a whole. acks: acknowledged. resent: sent again, here or to
    another node, because this one did not acknowledge. opened, reused: connections. stale: kept ones that the node
    had closed, noticed before they were written to. failed: dials, handshakes and chunks that broke. ack_timeouts:
    chunks not acknowledged in time. heartbeats, heartbeats_failed: those sent. detached: how often the failure
    detector gave the node up.
    """

    sent: int = 0
    sent_events: int = 0
    sent_bytes: int = 0
    acks: int = 0
    resent: int = 0
    opened: int = 0
    reused: int = 0
    stale: int = 0
    failed: int = 0
    ack_timeouts: int = 0
    heartbeats: int = 0
    heartbeats_failed: int = 0
    detached: int = 0


class Node:
    """One node. changed(): called when the balancer must think again. now: the clock, in seconds."""

    def __init__(
        self,
        service: Service,
        detection: Detection,
        *,
        now: float,
        changed: Callable[[], None],
        names: NodeNames,
        tls: TlsConfig | None = None,
    ) -> None:
        self.service = service
        address = f"{service.host}:{service.port}"
        self.title = address if service.title == address else f"{service.title} ({address})"
        self.weight = service.weight
        self.standby = service.standby
        self.names = names
        self.tls = tls
        self.available = True
        self.gone = False
        """Service discovery does not know it any more."""
        self.failures = 0
        """Failures in a row."""
        self.counters = Counters()
        self._detection = detection
        self._detector = FailureDetector(detection.interval, now)
        self._hold_until = 0.0
        self._last_error: Exception | None = None
        self._changed = changed

    @property
    def down(self) -> bool:
        """Whether a standby node should take its part."""
        return not self.available or self.failures >= DOWN_AFTER

    def held(self, now: float) -> bool:
        """Whether others are to be tried first."""
        return bool(self.failures) and now < self._hold_until

    def begin(self, now: float) -> None:
        """A delivery tries it now: while its last attempt failed, others wait for the outcome of this one."""
        if self.failures:
            self._hold_until = now + self._hold()

    def _hold(self) -> float:
        return float(min(FIRST_HOLD * 2 ** min(self.failures - 1, 16), max(self._detection.recover_wait, FIRST_HOLD)))

    def succeeded(self, now: float) -> None:
        """Note a chunk that arrived. As in Fluentd it does not bring back a node that is detached."""
        self._detector.heard(now)
        self._mend()

    def failed(self, now: float, error: Exception | None = None) -> None:
        """Note a connection that failed. error: many chunks that fail by the same one are one failure."""
        if error is not None and error is self._last_error:
            return
        self._last_error = error
        self.failures += 1
        self._hold_until = now + self._hold()
        if self.failures >= DOWN_AFTER:
            self.names.forget()  # it may have moved
        if self.failures == DOWN_AFTER:
            self._changed()

    def _mend(self) -> None:
        before, self.failures = self.failures, 0
        self._last_error = None
        if before >= DOWN_AFTER:
            self._changed()

    def heartbeat(self, now: float) -> bool:
        """Note a heartbeat that was answered; return whether the node has recovered by it."""
        self._detector.heard(now)
        self._mend()
        detection = self._detection
        if self.available or self._detector.samples <= detection.recover_wait / detection.interval:
            return False
        self.available = True
        self._changed()
        return True

    def detach(self) -> None:
        """Use it no more until heartbeats have come for recover_wait; nothing where there are none."""
        if not self._detection.heartbeats:
            return
        self._detector.clear()
        self.names.forget()
        if self.available:
            self.available = False
            self.counters.detached += 1
            self._changed()

    def tick(self, now: float) -> str:
        """Judge it, once an interval; return why it was detached just now, "" when it was not."""
        detection, detector = self._detection, self._detector
        silent = detector.silent_for(detection.hard_timeout, now)
        if not self.available:
            if silent:
                detector.clear()
            return ""
        if silent:
            self.detach()
            return f"nothing was heard of it for {detection.hard_timeout:g} s (hard_timeout)"
        if detection.phi and (phi := detector.phi(now)) > detection.phi_threshold:
            self.detach()
            return f"phi {phi:.1f} is above phi_threshold {detection.phi_threshold:g}"
        return ""

    def stats(self) -> dict[str, Any]:
        """The figures of this node."""
        return {
            "address": f"{self.service.host}:{self.service.port}",
            "available": self.available,
            "standby": self.standby,
            "weight": self.weight,
            "failures_in_a_row": self.failures,
            **asdict(self.counters),
        }

    def __repr__(self) -> str:
        return f"<Node {self.title}>"
