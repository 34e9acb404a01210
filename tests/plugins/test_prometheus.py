"""The Prometheus family: what is counted, how it is told, and what check says."""

import asyncio
import gzip

import pytest
from eco_rig import batch, source
from http_rig import client, context_of, make, problems_of

from headrace.pipeline.event import Batch
from headrace.plugins.prometheus.registry import COUNTER, GAUGE, HISTOGRAM, SUMMARY, Registry, registry_of
from headrace.plugins.prometheus.text import Aggregate, render, render_open
from headrace.testing.clock import FakeClock
from headrace.testing.contracts import check_filter, check_output, check_source
from headrace.testing.pipelines import Kit, TransientError


def counted(section, *batches, tag="app.web.one", **settings):
    """The text after some batches went through the filter."""
    context = context_of(**settings)
    errors = []
    context.root.emit_error_event = lambda tag, time, record, error: errors.append((record, error))
    plugin = make("filter", f"<filter **>\n@type prometheus\n{section}\n</filter>", context)
    for one in batches:
        assert plugin.filter_batch(tag, one) is one
    return render(registry_of(context).collect()).decode(), errors


def metric(kind, more="", name="m"):
    return f"<metric>\nname {name}\ntype {kind}\ndesc What it is\n{more}\n</metric>\n"


def test_a_counter_without_a_key_counts_events_and_decodes_nothing():
    packed = Batch.from_packed(batch({"a": 1}, {"a": 2}).packed(), 2)
    text, _ = counted(metric("counter", "<labels>\ntag ${tag}\nhost ${hostname}\n</labels>"), packed, packed)
    assert text == '# TYPE m counter\n# HELP m What it is\nm{tag="app.web.one",host="localhost"} 4.0\n'
    assert not packed.is_unpacked


def test_a_counter_of_a_field_adds_its_values_and_leaves_records_without_it_out():
    text, errors = counted(metric("counter", "key $.in.n"), batch({"in": {"n": 2}}, {"in": {"n": 0.5}}, {"x": 1}))
    assert text.endswith("\nm 2.5\n")
    assert not errors


@pytest.mark.parametrize("value", [-1, "5", True, [1]])
def test_what_cannot_be_counted_is_an_error_event_and_stops_nothing(value):
    text, errors = counted(metric("counter", "key n"), batch({"n": 1}, {"n": value}, {"n": 2}))
    assert text.endswith("\nm 3.0\n")
    assert [record for record, _ in errors] == [{"n": value}]


def test_gauge_summary_histogram():
    events = batch({"n": 3}, {"n": 0.5}, {"n": 20})
    text, _ = counted(
        metric("gauge", "key n", "g")
        + metric("summary", "key n", "s")
        + metric("histogram", "key n\nbuckets 1, 5.5", "h"),
        events,
    )
    assert "\ng 20.0\n" in text
    assert "\ns_sum 23.5\ns_count 3.0\n" in text
    assert 'h_bucket{le="1"} 1.0\nh_bucket{le="5.5"} 2.0\nh_bucket{le="+Inf"} 3.0\nh_sum 23.5\nh_count 3.0\n' in text


def test_a_metric_without_labels_is_there_before_the_first_event():
    text, _ = counted(metric("counter") + metric("histogram", "key n", "h"))
    assert "\nm 0.0\n" in text
    assert 'h_bucket{le="0.005"} 0.0' in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("${tag_parts[0]}", "app"),
        ("${tag_parts[-1]}", "one"),
        ("${tag_prefix[1]}", "app.web"),
        ("${tag_suffix[1]}", "web.one"),
        ("${worker_id}-${hostname}", "0-localhost"),
        ("x ${code} y", "x 200 y"),
        ('${map["a"]}', "b"),
        ("${list[1]}", "q"),
        ("${list[-2]}", "p"),
        ("$.map.a", "b"),
        ("$['list'][0]", "p"),
        ("$.none", ""),
        ("${none}", "${none}"),
        ("${tag_parts[7]}", "${tag_parts[7]}"),
        ("${tag_prefix[-1]}", "${tag_prefix[-1]}"),
        ("$.quote", '\\"\\\\\\n'),
        ("$.bad", "\ufffd"),
    ],
)
def test_values_of_labels(value, shown):
    record = {
        "code": 200, "map": {"a": "b"}, "list": ["p", "q"], "quote": '"\\\n', "bad": b"\xff", "tag": "no",
        "tag_parts": ["of", "record"],
    }  # fmt: skip
    text, _ = counted(metric("counter", f"<labels>\nl {value}\n</labels>"), batch(record))
    assert text.splitlines()[-1] == f'm{{l="{shown}"}} 1.0'


def test_labels_of_the_plugin_and_of_the_metric_and_the_worker():
    section = "<labels>\na 1\nb 2\n</labels>\n" + metric("counter", "<labels>\nb 3\n</labels>")
    text, _ = counted(section, batch({}), workers=2, worker_id=1)
    assert text.endswith('m{a="1",b="3",worker_id="1"} 1.0\n')


def test_initialized_with_initlabels():
    more = """
        initialized true
        <labels>
          key $.foo
          fixed x
          w ${worker_id}
        </labels>
        <initlabels>
          key one
        </initlabels>
        <initlabels>
          key two
        </initlabels>
    """
    text, _ = counted(metric("counter", more), batch({"foo": "two"}))
    assert text.endswith('m{key="one",fixed="x",w="0"} 0.0\nm{key="two",fixed="x",w="0"} 1.0\n')


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (metric("gauge"), "gauge metric requires 'key' option"),
        (metric("counter", "buckets 1,2"), "a counter has no buckets"),
        (metric("histogram", "key n\nbuckets 2,1"), "ascending"),
        (metric("histogram", "key n\nbuckets a"), '"buckets"'),
        (metric("counter", name="1a"), "no name of a metric"),
        (metric("counter", "<labels>\na-b c\n</labels>"), "no name of a label"),
        (metric("counter", "key $.a["), "not an index"),
        (metric("counter") + metric("gauge", "key n"), "already been registered as counter type"),
        (metric("counter") + metric("counter", "<labels>\na b\n</labels>"), "other labels"),
        (metric("counter", "initialized true\n<labels>\na $.b\n</labels>"), "has no value yet"),
        (metric("counter", "<initlabels>\na b\n</initlabels>"), "needs initialized true"),
        (metric("counter", "initialized true\n<labels>\na b\n</labels>\n<initlabels>\na c\n</initlabels>"), "not vary"),
        (metric("counter", "retention 1h"), 'unknown parameter "retention"'),
        (metric("meter"), '"type"'),
    ],
)
def test_check_tells_what_is_wrong(section, told):
    errors, _ = problems_of("filter", f"<filter **>\n@type prometheus\n{section}\n</filter>")
    assert any(told in error for error in errors), errors
    assert all("test.conf:" in error for error in errors)


def test_openmetrics_keeps_the_names():
    registry = Registry()
    registry.family("a_total", COUNTER, "A", ()).add((), 2)
    registry.family("b", COUNTER, "B", ()).add((), 1)
    registry.family("h", HISTOGRAM, "H", ("x",), (1, 2.5)).observe(("y",), 2)
    registry.family("s", SUMMARY, "S", ()).observe((), 2)
    registry.family("g", GAUGE, "G", ()).set((), float("inf"))
    text = render_open(registry.collect()).decode()
    assert "# TYPE a counter\n# HELP a A\na_total 2.0\n" in text
    assert "# TYPE b unknown\n# HELP b B\nb 1.0\n" in text
    assert 'h_bucket{x="y",le="1.0"} 0.0\nh_bucket{x="y",le="2.5"} 1.0\nh_bucket{x="y",le="+Inf"} 1.0\n' in text
    assert "\ng +Inf\n" in text
    assert text.endswith("# EOF\n")


def test_texts_of_workers_become_one():
    whole = Aggregate()
    whole.add(b'# TYPE a counter\n# HELP a A\na{w="0"} 1.0\n')
    whole.add(b'# TYPE a counter\n# HELP a A\na{w="1"} 2.0\n# TYPE b gauge\n# HELP b B\nb 3.0\n')
    assert whole.render() == (
        b'# TYPE a counter\n# HELP a A\na{w="0"} 1.0\na{w="1"} 2.0\n# TYPE b gauge\n# HELP b B\nb 3.0\n'
    )


async def ask(port, path="/metrics", *fields, method="GET"):
    async with client(port) as peer:
        lines = [f"{method} {path} HTTP/1.1", "Host: h", *fields, "", ""]
        return await peer.ask("\r\n".join(lines).encode())


async def test_the_source_answers_in_the_format_that_is_asked_for():
    async with source("@type prometheus\nport 0") as (plugin, _):
        registry_of(plugin.context).family("a", GAUGE, "A", ()).set((), 1)
        status, headers, body = await ask(plugin.bound)
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4")
        assert body == b"# TYPE a gauge\n# HELP a A\na 1.0\n"
        _, headers, body = await ask(plugin.bound, "/metrics?x=1", "Accept: application/openmetrics-text;version=1.0.0")
        assert headers["content-type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")
        assert (await ask(plugin.bound, "/other"))[0] == 404
        assert (await ask(plugin.bound, method="POST"))[0] == 405
        assert plugin.stats()["requests"] == 4


async def test_gzip_and_other_paths():
    conf = "@type prometheus\nport 0\ncontent_encoding gzip\nmetrics_path /m\naggregated_metrics_path /all"
    async with source(conf) as (plugin, _):
        registry_of(plugin.context).family("a", GAUGE, "A", ()).set((), 1)
        for path in ("/m", "/all"):
            _, headers, body = await ask(plugin.bound, path)
            assert headers["content-encoding"] == "gzip"
            assert b"a 1.0" in gzip.decompress(body)


async def test_figures_of_all_workers(monkeypatch):
    async with (
        source("@type prometheus\nport 0") as (other, _),
        source("@type prometheus\nport 0", workers=2) as (plugin, _),
    ):
        registry_of(other.context).family("a", GAUGE, "A", ("w",)).set(("1",), 1)
        registry_of(plugin.context).family("a", GAUGE, "A", ("w",)).set(("0",), 0)
        monkeypatch.setitem(plugin.__dict__, "port", other.bound - 1)
        status, _, body = await ask(plugin.bound, "/aggregated_metrics")
        assert status == 200
        assert body == b'# TYPE a gauge\n# HELP a A\na{w="0"} 0.0\na{w="1"} 1.0\n'
        await other.quiesce()
        next(iter(other.context.sockets.values())).close()
        status, _, body = await ask(plugin.bound, "/aggregated_metrics")
        assert status == 500
        assert b"ConnectionFailed" in body


async def test_a_failing_figure_is_a_500_and_a_log_line(caplog):
    async with source("@type prometheus\nport 0") as (plugin, _):
        registry_of(plugin.context).collect_with(lambda: 1 / 0)
        for _ in range(3):
            assert (await ask(plugin.bound))[0] == 500
    assert caplog.text.count("failed to render metrics") == 1


def test_each_worker_has_a_port_of_its_own():
    context = context_of(workers=3, worker_id=2)
    plugin = make("input", "<source>\n@type prometheus\nbind ::1\n</source>", context)
    assert [spec.address for spec in plugin.listeners()] == ["[::1]:24233"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("metrics_path /aggregated_metrics", "the same"),
        ("metrics_path metrics", "must begin with /"),
        ("<ssl>\nenable true\ncertificate_path a.pem\n</ssl>", "both certificate_path and private_key_path"),
        ("<ssl>\nenable true\nextra_conf {}\n</ssl>", "WEBrick"),
        ("<transport tls>\n</transport>", "needs one of cert_path"),
        ("port 65535", ""),
    ],
)
def test_check_of_the_source(more, told):
    errors, _ = problems_of("input", f"<source>\n@type prometheus\n{more}\n</source>")
    assert bool(errors) == bool(told)
    assert all(told in error for error in errors)


MONITORED = """
<source>
  @type prometheus_output_monitor
  gauge_all false
  <labels>
    host ${hostname}
  </labels>
</source>
<source>
  @type prometheus_monitor
</source>
<match **>
  @type script
  @id sink
  <buffer time>
    timekey 60
    timekey_wait 0
    retry_randomize false
  </buffer>
</match>
"""


async def test_monitors_tell_what_the_buffers_do():
    kit = await Kit(MONITORED, clock=FakeClock()).start()
    registry = registry_of(kit.pipeline.context)

    def values():
        text = render(registry.collect()).decode()
        return {line.split("{")[0]: float(line.split()[-1]) for line in text.splitlines() if '"sink"' in line}, text

    await kit.emit("t", {"a": 1}, {"a": 2})
    found, text = values()
    assert found["fluentd_output_status_emit_records"] == 2
    assert found["fluentd_output_status_buffer_stage_length"] == 1
    assert found["fluentd_status_buffer_newest_timekey"] == found["fluentd_output_status_buffer_oldest_timekey"]
    assert found["fluentd_output_status_buffer_available_space_ratio"] > 99
    assert 'fluentd_output_status_emit_records{host="localhost",plugin_id="sink",type="script"} 2.0' in text
    assert 'fluentd_status_retry_count{plugin_id="sink",plugin_category="output",type="script"} 0.0' in text
    assert "# TYPE fluentd_output_status_retry_count counter" in text
    await kit.emit("t", {"a": 3})
    assert values()[0]["fluentd_output_status_emit_records"] == 2  # not older than the interval
    await kit.clock.elapse(5)
    assert values()[0]["fluentd_output_status_emit_records"] == 3
    await kit.stop()


async def test_counts_of_outputs_without_a_buffer_and_of_retries():
    text = "<source>\n@type prometheus_output_monitor\ninterval 0\n</source>\n<match d>\n@type direct\n</match>\n"
    text += (
        "<match **>\n@type script\n@id s\n<buffer>\nflush_mode immediate\nretry_randomize false\n</buffer>\n</match>"
    )
    kit = await Kit(text, clock=FakeClock()).start()
    registry = registry_of(kit.pipeline.context)
    kit.script.answers = [TransientError("down")]
    await kit.emit("d", {"a": 1}, {"a": 2})
    await kit.emit("t", {"a": 1})
    await kit.work()
    lines = render(registry.collect()).decode().splitlines()
    found = {line.rpartition(" ")[0]: float(line.split()[-1]) for line in lines if "{" in line}
    direct = '{plugin_id="output_direct.1",type="direct"}'
    assert found[f"fluentd_output_status_emit_count{direct}"] == 1
    assert found[f"fluentd_output_status_emit_records{direct}"] == 2
    script = '{plugin_id="s",type="script"}'
    assert found[f"fluentd_output_status_num_errors{script}"] == 1
    assert found[f"fluentd_output_status_rollback_count{script}"] == 1
    assert found[f"fluentd_output_status_retry_wait{script}"] == 1
    assert f"fluentd_output_status_flush_time_count{script}" in found
    await kit.clock.elapse(2)
    await kit.stop()


async def test_positions_of_tailed_files(tmp_path):
    (tmp_path / "a.log").write_text("one\ntwo\n")
    tail = f"@type tail\n@id files\npath {tmp_path}/*.log\ntag t\nread_from_head true\n<parse>\n@type none\n</parse>"
    monitor = "<source>\n@type prometheus_tail_monitor\ninterval 0\n</source>"
    context = context_of()
    async with source(tail, context=context) as (tailing, taken):
        plugin = make("input", monitor, context)
        registry = registry_of(context)
        async with asyncio.timeout(20):
            while len(taken.records) < 2:
                await asyncio.sleep(0.01)
        text = render(registry.collect()).decode()
        labels = f'{{plugin_id="files",type="tail",path="{tmp_path}/a.log"}}'
        assert f"fluentd_tail_file_position{labels} 8.0" in text
        assert f"fluentd_tail_file_inode{labels} {float((tmp_path / 'a.log').stat().st_ino)}" in text
        assert f"fluentd_tail_file_opened{labels}" in text
        assert plugin.interval == 0
        tailing._keeper.tails.clear()
        assert "position{" not in render(registry.collect()).decode()


def test_a_monitor_has_no_records():
    errors, _ = problems_of("input", "<source>\n@type prometheus_monitor\n<labels>\na $.b\n</labels>\n</source>")
    assert any("record accessor syntax is not available" in error for error in errors)


def test_contracts():
    section = metric("counter", "key a\n<labels>\nm $.message\n</labels>")
    asyncio.run(check_filter(f"<filter **>\n@type prometheus\n{section}\n</filter>"))
    asyncio.run(check_output(f"<match **>\n@type prometheus\n{section}\n</match>"))
    for name in ("prometheus_monitor", "prometheus_output_monitor", "prometheus_tail_monitor"):
        asyncio.run(check_source(f"<source>\n@type {name}\n</source>"))
