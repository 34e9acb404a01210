"""Parameters from before Fluentd 0.14: they work where Fluentd converts them, and are reported where it does not."""

import pytest

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.pipeline.build import build_pipeline
from headrace.plugins.in_http import HttpInput
from headrace.plugins.out_file import FileOutput
from headrace.plugins.out_stdout import StdoutOutput
from headrace.plugins.registry import lookup


def build(text, *, strict=True):
    problems = Problems(unknown_is_error=strict)
    tree = parse(text, "t.conf", env={}, hostname="h", worker_id="0")
    return build_pipeline(tree, lookup=lookup, problems=problems), [str(error) for error in problems.errors]


def plugin(text, cls):
    pipeline, errors = build(text)
    assert not errors
    return next(item for item in pipeline.plugins if type(item) is cls)


def out_file(tmp_path, text):
    return plugin(f"<match **>\n@type file\npath {tmp_path}/out\n{text}\n</match>\n", FileOutput)


BUFFER = """
flush_interval 10s
buffer_type memory
num_threads 3
try_flush_interval 2
queued_chunk_flush_interval 0.5
retry_limit 4
max_retry_wait 30s
buffer_chunk_limit 2m
buffer_queue_limit 7
buffer_queue_full_action exception
flush_at_shutdown true
time_slice_wait 3m
timezone +09:00
"""


def test_every_old_parameter_of_the_buffer_arrives(tmp_path):
    section = out_file(tmp_path, BUFFER.replace("flush_interval 10s", "") + "time_slice_format %Y%m%d%H").runner.section
    assert section.type_ == "memory"
    assert (section.flush_thread_count, section.flush_thread_interval, section.flush_thread_burst_interval) == (
        3,
        2,
        0.5,
    )
    assert (section.retry_max_times, section.retry_max_interval) == (4, 30.0)
    assert (section.chunk_limit_size, section.queue_limit_length) == (2 << 20, 7)
    assert section.overflow_action == "throw_exception"
    assert section.flush_at_shutdown is True
    assert (section.timekey, section.timekey_wait, section.timekey_zone) == (3600.0, 180.0, "+09:00")


@pytest.mark.parametrize(("given", "meant"), [("block", "block"), ("drop_oldest_chunk", "drop_oldest_chunk")])
def test_the_full_action_keeps_its_name(tmp_path, given, meant):
    output = out_file(tmp_path, f"buffer_queue_full_action {given}")
    assert output.runner.section.overflow_action == meant
    assert output.runner.section.timekey == 86400


@pytest.mark.parametrize(("form", "seconds"), [("%Y%m%d%H%M%S", 1), ("%Y%m%d%H%M", 60), ("%Y%m%d", 86400)])
def test_the_slice_of_the_path_is_the_slice_of_the_buffer(tmp_path, form, seconds):
    output = out_file(tmp_path, f"time_slice_format {form}\nutc true")
    assert output.runner.section.timekey == seconds
    assert output.runner.section.timekey_use_utc is True
    assert output._template.endswith(f"out.{form}_**.log")


def test_a_slice_of_a_month_is_refused(tmp_path):
    _, errors = build(f"<match **>\n@type file\npath {tmp_path}/o\ntime_slice_format %Y%m\n</match>\n")
    assert errors == ["time_slice_format with only %Y or %m is too long in t.conf:1"]


def test_a_section_wins_over_old_parameters(tmp_path):
    text = f"<match **>\n@type file\npath {tmp_path}/o\nnum_threads 3\n<buffer time>\ntimekey 60\n</buffer>\n</match>\n"
    assert build(text)[1] == [
        'unknown parameter "num_threads" in t.conf:4 (write it in <buffer>, as flush_thread_count)'
    ]
    pipeline, errors = build(text, strict=False)
    assert not errors
    assert pipeline.runners[0].section.flush_thread_count == 1


def test_where_fluentd_converts_nothing_the_hint_names_the_section():
    text = "<match **>\n@type http\nendpoint http://127.0.0.1:9/\nflush_interval 1s\n</match>\n"
    assert build(text)[1] == ['unknown parameter "flush_interval" in t.conf:4 (write it in <buffer>)']


def test_an_old_format_and_an_old_inject(tmp_path):
    output = out_file(tmp_path, "format json\ninclude_tag_key true\ninclude_time_key true\nutc true\ntag_key t")
    text = output.format("a.b", 0, {"x": 1})
    assert text == b'{"x":1,"t":"a.b","time":"1970-01-01T00:00:00Z"}\n'


def test_delimiter_and_output_tag_reach_the_formatter(tmp_path):
    output = out_file(tmp_path, "delimiter COMMA\noutput_time false")
    assert output.format("a.b", 0, {"x": 1}) == b'a.b,{"x":1}\n'


def test_time_as_epoch(tmp_path):
    output = out_file(tmp_path, "format json\ninclude_time_key true\ntime_as_epoch true")
    assert output.format("a", 5_000_000_000, {}) == b'{"time":5}\n'


def test_what_the_old_formatter_does_not_know_is_reported(tmp_path):
    _, errors = build(f"<match **>\n@type file\npath {tmp_path}/o\nformat json\nlabel_delimiter ;\n</match>\n")
    assert [error.partition(" (")[0] for error in errors] == ['unknown parameter "label_delimiter" in t.conf:5']


def test_stdout_has_format_and_inject_but_no_buffer():
    output = plugin("<match **>\n@type stdout\nformat json\ninclude_tag_key true\n</match>\n", StdoutOutput)
    assert output.format("a.b", 0, {}) == b'{"tag":"a.b"}\n'
    assert build("<match **>\n@type stdout\nnum_threads 2\n</match>\n")[1]


HTTP = "<source>\n@type http\nport 1\n{}\n</source>\n<match **>\n@type null\n</match>\n"


def test_the_old_parser_of_http():
    source = plugin(HTTP.format("format csv\nkeys a,b\ntypes a:integer|b:string\ntypes_delimiter |"), HttpInput)
    assert source._parser.keys == ["a", "b"]
    assert source._parser.types == {"a": "integer", "b": "string"}


def test_an_old_regexp():
    source = plugin(HTTP.format("format /^(?<a>.*)$/\ntime_format %Y\nlocaltime false"), HttpInput)
    assert source._parser.expression.search("x y").groupdict() == {"a": "x y"}
    assert source._parser.zone is not None


def test_localtime_and_utc_contradict(tmp_path):
    _, errors = build(f"<match **>\n@type file\npath {tmp_path}/o\nlocaltime true\nutc true\n</match>\n")
    assert errors
    assert "contradict" in errors[0]


def test_a_wrong_value_names_the_line_it_stands_in(tmp_path):
    _, errors = build(f"<match **>\n@type file\npath {tmp_path}/o\nbuffer_chunk_limit lots\n</match>\n")
    assert len(errors) == 1
    assert "t.conf:4" in errors[0]
