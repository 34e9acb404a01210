"""Figures as text for Prometheus, pools as a list."""

from __future__ import annotations

import asyncio

from headrace.commands.top import rows_of, short, table
from headrace.supervisor.admin.exposition import current, pools_of, render
from headrace.testing.pipelines import Kit, TransientError

CONF = """
<filter a>
  @type drop_odd
  @id even
</filter>
<match a>
  @type script
  @id out
  <buffer>
    flush_mode immediate
    retry_wait 1
    retry_randomize false
  </buffer>
</match>
"""


def worker(index=0, generation=1, **rooms):
    return {
        "worker": index,
        "generation": generation,
        "pid": 1,
        "state": "running",
        "uptime": 1.5,
        "rss": 1000,
        "loop": {"lag": 0.0, "lag_max": 0.25},
        "gc_collections": 3,
        **rooms,
    }


def values(text: bytes) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


async def test_after_a_recovery_the_current_retry_is_0_and_the_total_stays():
    kit = await Kit(CONF).start()
    about = 'worker="0",id="out",type="script",kind="output"'

    def told():
        return values(render([worker(pipeline=kit.pipeline.stats())]))

    kit.script.answers = [TransientError("away")] * 3
    await kit.emit("a", {"n": 1}, {"n": 2})
    await kit.clock.elapse(1.5)
    during = told()
    assert during[f"headrace_retry_current{{{about}}}"] == 2
    assert during[f"headrace_buffer_events{{{about}}}"] == 1
    assert during[f"headrace_buffer_oldest_chunk_age_seconds{{{about}}}"] == 1.5
    await kit.clock.elapse(20)
    after = told()
    assert after[f"headrace_retry_current{{{about}}}"] == 0
    assert after[f"headrace_retries_total{{{about}}}"] == 3
    assert after[f"headrace_errors_total{{{about}}}"] == 3
    assert after[f"headrace_sent_events_total{{{about}}}"] == 1
    assert after[f"headrace_buffer_bytes{{{about}}}"] == 0
    dropped = 'headrace_dropped_events_total{worker="0",id="even",type="drop_odd",kind="filter",reason="filtered"}'
    assert after[dropped] == 1
    await kit.emit("a", {"n": 4})
    await kit.clock.elapse(5)
    assert told()[f"headrace_retries_total{{{about}}}"] == 3
    await kit.stop()


def test_the_newest_generation_is_told_and_one_that_does_not_answer_is_down():
    old, new = worker(0, 1, rss=1), worker(0, 2, rss=2)
    silent = {"worker": 1, "pid": 9, "state": "does not answer"}
    assert current([new, old, silent]) == [new, silent]
    told = values(render([new, old, silent]))
    assert told['headrace_resident_bytes{worker="0"}'] == 2
    assert told['headrace_worker_up{worker="1"}'] == 0


def test_openmetrics_names_counters_without_their_ending_and_has_an_end():
    text = render([worker()], openmetrics=True).decode()
    assert "# TYPE headrace_gc_collections counter\nheadrace_gc_collections_total{" in text
    assert text.endswith("# EOF\n")
    assert "# TYPE headrace_gc_collections_total counter\n" in render([worker()]).decode()


def test_labels_are_escaped():
    pipeline = {"plugins": {}, "unmatched": {'@"\\\n\udcff': 1}, "error_events": 0, "error_events_lost": 0}
    assert 'label="@\\"\\\\\\n?"' in render([worker(pipeline=pipeline)]).decode()


def test_pools_of_all_owners():
    rooms = {
        "edge": {
            "requests": 1,
            "connections": 1,
            "upstreams": {
                "back": {
                    "opened": 2,
                    "reused": 5,
                    "stale": 1,
                    "idle": 1,
                    "peers": {"a": {"conns": 1}, "b": {"conns": 2}},
                }
            },
        },
        "lua": {"pools": [{"key": "h:1", "idle": 1, "in_use": 2, "opened": 3, "reused": 4, "stale": 5}]},
        "pipeline": {"plugins": {"out": {"type": "http", "connections": {"opened": 1, "reused": 7, "idle": 1}}}},
    }
    assert [tuple(pool.values()) for pool in pools_of(worker(**rooms))] == [
        ("upstream", "back", 1, 3, 2, 5, 1),
        ("cosocket", "h:1", 1, 2, 3, 4, 5),
        ("http", "out", 1, None, 1, 7, None),
    ]


async def test_top_shows_rates_and_retries():
    kit = await Kit(CONF).start()
    kit.script.answers = [TransientError("away")] * 9
    before = rows_of([worker(pipeline=kit.pipeline.stats())])
    await kit.emit("a", *[{"n": number} for number in range(10)])
    await kit.work()
    workers = [worker(pipeline=kit.pipeline.stats()), {"worker": 1, "pid": 3, "state": "does not answer"}]
    master = {"pid": 7, "uptime": 3.0, "sources": ["/etc/a\x1b.conf"]}
    lines = table({"master": master, "workers": workers}, rows_of(workers), before, 2.0)
    assert "\x1b" not in "".join(lines)
    (even,) = (line.split() for line in lines if line.startswith("even "))
    assert even == ["even", "drop_odd", "5", "2.5", "0", "5", "-", "-", "-"]
    (out,) = (line.split() for line in lines if line.startswith("out "))
    assert out[:4] == ["out", "script", "2.5", "0"]
    assert out[-3:] == ["1", "(1", "s)"]
    assert any("does not answer" in line for line in lines)
    await asyncio.gather(kit.stop())


def test_short_numbers():
    assert [short(value) for value in (0, 12, 12.34, 1234, 999_999, 5_000_000)] == [
        "0",
        "12",
        "12.3",
        "1.23k",
        "1000k",
        "5M",
    ]
