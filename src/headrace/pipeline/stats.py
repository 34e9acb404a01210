"""The figures of a buffered output, by the names that Fluentd's monitor_agent uses where it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

TOLD: Final = 100
"""Chunks of which the attempts are told."""

if TYPE_CHECKING:
    from headrace.pipeline.runner import Runner


def runner_stats(runner: Runner) -> dict[str, Any]:
    """Return counters and gauges. At any moment received + restored = delivered + buffered + dropped.

    damaged: places of the journal where damage was found at a start; each has a line in the log, and its bytes are in
    the backup. unaccounted: the difference of both sides: 0.
    dropped: events that left without being delivered, by reason. oldest_chunk_age: seconds since the
    oldest chunk in the buffer was begun, 0 when it is empty.
    """
    buffer, intake, delivery, clock = runner.buffer, runner.intake, runner.delivery, runner.context.clock
    chunks = list(buffer.everything())
    now = clock.now()
    total = buffer.limits.total
    dropped = {
        "rejected": intake.rejected,
        "left_out": intake.shaper.skipped,
        "oldest_dropped": intake.discarded,
        "backed_up": delivery.backed_up,
        "sent_to_dlq": delivery.letters.sent if delivery.letters is not None else 0,
        "thrown_away": delivery.thrown_away,
        "lost_at_shutdown": runner.lost,
    }
    timekeys = [chunk.meta.timekey for chunk in chunks if chunk.meta.timekey is not None]
    staged = sum(chunk.size for chunk in buffer.staged.values())
    return {
        "received": intake.received,
        "restored": runner.restored,
        "delivered": delivery.delivered,
        "delivered_by_secondary": delivery.by_secondary,
        "buffered": buffer.events - runner.lost,
        "dropped": dropped,
        "unaccounted": intake.received
        + runner.restored
        - delivery.delivered
        - (buffer.events - runner.lost)
        - sum(dropped.values()),
        "buffer_stage_length": len(buffer.staged),
        "buffer_stage_byte_size": staged,
        "buffer_queue_length": len(buffer.queued),
        "buffer_queue_byte_size": buffer.used - staged,
        "buffer_in_flight": len(buffer.in_flight),
        "buffer_total_queued_size": buffer.used,
        "buffer_available_buffer_space_ratios": round(100 * (1 - buffer.used / total), 1),
        "buffer_oldest_timekey": min(timekeys, default=None),
        "buffer_newest_timekey": max(timekeys, default=None),
        "oldest_chunk_age": round(max((now - chunk.since for chunk in chunks), default=0.0), 3),
        "tried_chunks": [
            {"id": chunk.hex_id, "attempts": chunk.attempts, "error": chunk.error} for chunk in chunks if chunk.attempts
        ][:TOLD],
        "overflows": intake.overflows.count,
        "write_errors": intake.write_errors.count,
        "damaged": getattr(buffer.store, "damaged", 0) + runner.adopter.damaged,
        "waiting_batches": intake.waiting,
        "write_count": delivery.attempts,
        "retry_count": delivery.failures,
        "retries": delivery.retries,
        "retry_step": delivery.gate.step,
        "retry_in": round(max(delivery.gate.opens_at - now, 0.0), 3) if delivery.gate.step else 0.0,
        "slow_flush_count": delivery.slow,
        "lanes": [lane.stats() for lane in runner.lanes.all],
    }
