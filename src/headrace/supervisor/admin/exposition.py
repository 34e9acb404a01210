"""Figures of workers as text for Prometheus (0.0.4) or OpenMetrics 1.0, and their pools of connections as a list.

Every sample has its worker's number: counters of workers begin anew one by one, and a sum would seem to go back. Of
two generations in the middle of a reload the newer one is told. What a figure means: docs/inside.md.

https://prometheus.io/docs/instrumenting/exposition_formats/
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Figures = Mapping[str, Any]

PLAIN: Final = b"text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

_COUNTER: Final = "counter"
_GAUGE: Final = "gauge"
_FAMILIES: Final[dict[str, tuple[str, str]]] = {
    "worker_up": (_GAUGE, "1 when the worker answers"),
    "worker_uptime_seconds": (_GAUGE, "Seconds since the worker began"),
    "worker_generation": (_GAUGE, "The generation of the worker; a reload begins a new one"),
    "resident_bytes": (_GAUGE, "Resident memory of the worker"),
    "loop_lag_seconds": (_GAUGE, "How late the loop was at the last heartbeat"),
    "loop_lag_max_seconds": (_GAUGE, "How late the loop was at the most"),
    "gc_collections_total": (_COUNTER, "Collections of Python's garbage"),
    "timers": (_GAUGE, "Timers of handlers, by state"),
    "received_events_total": (_COUNTER, "Events that came to a component"),
    "sent_events_total": (_COUNTER, "Events that left a component: emitted, passed or delivered"),
    "errors_total": (_COUNTER, "Deliveries that failed, or events that were refused at once"),
    "dropped_events_total": (_COUNTER, "Events that left a component without being delivered, by reason"),
    "buffer_events": (_GAUGE, "Events in a buffer"),
    "buffer_bytes": (_GAUGE, "Bytes in a buffer"),
    "buffer_chunks": (_GAUGE, "Chunks in a buffer, by state"),
    "buffer_free_ratio": (_GAUGE, "The part of a buffer's limit that is free, from 0 to 1"),
    "buffer_oldest_chunk_age_seconds": (_GAUGE, "Seconds since the oldest chunk in a buffer was begun"),
    "retry_current": (_GAUGE, "Failed attempts in a row of an output now; 0 when its destination takes events"),
    "retry_in_seconds": (_GAUGE, "Seconds until the destination is tried again"),
    "retries_total": (_COUNTER, "Deliveries of chunks that were tried before"),
    "deliveries_total": (_COUNTER, "Deliveries that were tried"),
    "slow_flushes_total": (_COUNTER, "Deliveries that took longer than slow_flush_log_threshold"),
    "unmatched_events_total": (_COUNTER, "Events that met no match section, by label"),
    "error_events_total": (_COUNTER, "Events that a component rejected"),
    "error_events_lost_total": (_COUNTER, "Error events that nothing took"),
    "dead_letters_bytes": (_GAUGE, "Bytes of dead letters"),
    "pool_idle": (_GAUGE, "Connections that wait for their next use"),
    "pool_in_use": (_GAUGE, "Connections in use"),
    "pool_opened_total": (_COUNTER, "Connections that were opened"),
    "pool_reused_total": (_COUNTER, "Uses of a connection that was kept"),
    "pool_stale_total": (_COUNTER, "Kept connections that were found dead"),
    "requests_total": (_COUNTER, "Requests of the gateway"),
    "connections": (_GAUGE, "Connections of the gateway's clients"),
}
_EMITTED: Final = ("events", "emitted")
"""What sources call the events they emitted."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def current(workers: Sequence[Figures]) -> list[Figures]:
    """Of each place the worker of the newest generation."""
    newest: dict[int, Figures] = {}
    for worker in workers:
        known = newest.get(worker["worker"])
        if known is None or worker.get("generation", 0) >= known.get("generation", 0):
            newest[worker["worker"]] = worker
    return [newest[index] for index in sorted(newest)]


def render(workers: Sequence[Figures], *, openmetrics: bool = False) -> bytes:
    """The text. workers: their figures, or what is known of one that does not answer."""
    samples: dict[str, list[str]] = {}
    for worker in current(workers):
        for name, labels, value in _samples(worker):
            pairs = {"worker": worker["worker"], **labels}
            text = ",".join(f'{key}="{_escaped(one)}"' for key, one in pairs.items())
            samples.setdefault(name, []).append(f"headrace_{name}{{{text}}} {value!r}")
    lines: list[str] = []
    for name, (kind, doc) in _FAMILIES.items():
        if name in samples:
            title = "headrace_" + (name.removesuffix("_total") if openmetrics and kind == _COUNTER else name)
            lines += [f"# HELP {title} {doc}", f"# TYPE {title} {kind}", *samples[name]]
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _escaped(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode().translate(_ESCAPES)


def _samples(worker: Figures) -> Iterator[tuple[str, dict[str, object], float]]:
    up = "uptime" in worker
    yield "worker_up", {}, int(up)
    if not up:
        return
    yield "worker_uptime_seconds", {}, worker["uptime"]
    yield "worker_generation", {}, worker["generation"]
    yield "resident_bytes", {}, worker["rss"]
    yield "loop_lag_seconds", {}, worker["loop"]["lag"]
    yield "loop_lag_max_seconds", {}, worker["loop"]["lag_max"]
    yield "gc_collections_total", {}, worker["gc_collections"]
    lua = worker.get("lua", {})
    for state in ("pending", "running"):
        if f"timers_{state}" in lua:
            yield "timers", {"state": state}, int(lua[f"timers_{state}"])
    edge = worker.get("edge")
    if edge:
        yield "requests_total", {}, edge["requests"]
        yield "connections", {}, edge["connections"]
    pipeline = worker.get("pipeline")
    if pipeline:
        yield from _pipeline(pipeline)
    for pool in pools_of(worker):
        where = {"owner": pool["owner"], "key": pool["key"]}
        for figure, name in _POOL.items():
            if pool[figure] is not None:
                yield name, where, pool[figure]


_POOL: Final = {
    "idle": "pool_idle",
    "in_use": "pool_in_use",
    "opened": "pool_opened_total",
    "reused": "pool_reused_total",
    "stale": "pool_stale_total",
}


def _pipeline(pipeline: Figures) -> Iterator[tuple[str, dict[str, object], float]]:
    for name, plugin in pipeline["plugins"].items():
        about: dict[str, object] = {"id": name, "type": plugin["type"], "kind": plugin["kind"]}
        for family, value in components(plugin).items():
            if value is not None:
                yield f"{family}_total", about, value
        for reason, count in drops(plugin).items():
            yield "dropped_events_total", {**about, "reason": reason}, count
        if "buffered" in plugin:
            yield from ((family, about, plugin[figure]) for family, figure in _BUFFERED.items())
            yield "buffer_free_ratio", about, plugin["buffer_available_buffer_space_ratios"] / 100
            for state, figure in _CHUNKS.items():
                yield "buffer_chunks", {**about, "state": state}, plugin[figure]
    for label, count in pipeline["unmatched"].items():
        yield "unmatched_events_total", {"label": label}, count
    yield "error_events_total", {}, pipeline["error_events"]
    yield "error_events_lost_total", {}, pipeline["error_events_lost"]
    letters = pipeline.get("dead_letters", {})
    if "bytes" in letters:
        yield "dead_letters_bytes", {}, letters["bytes"]


_BUFFERED: Final = {
    "buffer_events": "buffered",
    "buffer_bytes": "buffer_total_queued_size",
    "buffer_oldest_chunk_age_seconds": "oldest_chunk_age",
    "retry_current": "retry_step",
    "retry_in_seconds": "retry_in",
    "retries_total": "retries",
    "deliveries_total": "write_count",
    "slow_flushes_total": "slow_flush_count",
}
_CHUNKS: Final = {
    "staged": "buffer_stage_length",
    "queued": "buffer_queue_length",
    "in_flight": "buffer_in_flight",
}


def components(plugin: Figures) -> dict[str, int | None]:
    """What came to a component, what left it, and what failed; None where that is not counted."""
    received, sent, errors = plugin.get("received"), None, None
    if plugin["kind"] == "input":
        received = None
        sent = next((plugin[name] for name in _EMITTED if isinstance(plugin.get(name), int)), None)
        refused = plugin.get("refused")
        errors = sum(refused.values()) if isinstance(refused, Mapping) else refused
    elif plugin["kind"] == "filter":
        sent = plugin.get("passed")
    elif "delivered" in plugin:
        sent, errors = plugin["delivered"], plugin["retry_count"]
    elif received is not None and "refused" in plugin:
        errors = plugin["refused"]
        sent = received - errors
    return {"received_events": received, "sent_events": sent, "errors": errors}


def drops(plugin: Figures) -> dict[str, int]:
    """Events that left a component without being delivered, by reason."""
    if plugin["kind"] == "filter":
        return {"filtered": max(plugin["received"] - plugin["passed"], 0)} if "passed" in plugin else {}
    dropped = plugin.get("dropped")
    return dict(dropped) if isinstance(dropped, Mapping) else {}


def pools_of(worker: Figures) -> list[dict[str, Any]]:
    """The pools of connections of one worker: owner, key, idle, in_use, opened, reused, stale (None: not counted)."""
    found: list[dict[str, Any]] = []
    for name, group in worker.get("edge", {}).get("upstreams", {}).items():
        busy = sum(peer.get("conns", 0) for peer in group.get("peers", {}).values())
        found.append(_pool("upstream", name, group, idle=group["idle"], in_use=busy, stale=group["stale"]))
    lua = worker.get("lua", {})
    found += [
        _pool("cosocket", pool["key"], pool, idle=pool["idle"], in_use=pool["in_use"], stale=pool["stale"])
        for pool in lua.get("pools", ())
    ]
    for name, plugin in worker.get("pipeline", {}).get("plugins", {}).items():
        counters = plugin.get("connections")
        if isinstance(counters, Mapping) and "opened" in counters:
            stale = counters.get("discarded_stale", counters.get("stale"))
            idle, busy = counters.get("idle"), counters.get("in_use", counters.get("busy"))
            found.append(_pool(plugin["type"], name, counters, idle=idle, in_use=busy, stale=stale))
    return found


def _pool(owner: str, key: str, counters: Figures, *, idle: Any, in_use: Any, stale: Any) -> dict[str, Any]:
    return {
        "owner": owner,
        "key": key,
        "idle": idle,
        "in_use": in_use,
        "opened": counters.get("opened"),
        "reused": counters.get("reused"),
        "stale": stale,
    }
