"""What every built-in plugin promises, whatever it is given."""

import copy

import msgpack
import pytest
from http_rig import context_of
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.conf.fluent import parse
from headrace.conf.params import declared
from headrace.pipeline.event import EventTime
from headrace.plugins import registry
from headrace.plugins.parsing import ParserError
from headrace.testing.clock import FakeClock

FORMATTERS = dict.fromkeys(registry.BUILT_INS["formatter"], "") | {
    "csv": "fields m,$.a.b[0],k",
    "tsv": "keys m,k",
    "single_value": "message_key m",
}
PARSERS = dict.fromkeys(registry.BUILT_INS["parser"], "") | {
    "csv": "keys a,time,c\ntime_key time",
    "tsv": "keys a,b",
    "regexp": r"expression /^(?<a>\S*) (?<time>.*)$/m",
    "apache2": "keep_time_key true",
    "multi_format": "format_key f\n<pattern>\nformat json\n</pattern>\n<pattern>\nformat none\n</pattern>",
    "multiline": r"format1 /^(?<a>\S*)\n?/",
    "ltsv": "types a:integer,b:float,c:bool,d:array,e:time,f:string",
}
PLUGINS = [(kind, name) for kind, names in registry.BUILT_INS.items() for name in names]

texts = st.text() | st.binary(max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=8)
    | st.integers(0, 2**62).map(EventTime)
    | st.binary(max_size=3).map(lambda data: msgpack.ExtType(9, data))
)
keys = st.sampled_from(["m", "k", "a", "b", "message"]) | texts | st.integers(-5, 5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
records = st.dictionaries(keys, values, max_size=5)


def make(kind, name, lines):
    context = context_of()
    (directive,) = parse(f"<x>\n@type {name}\n{lines}\n</x>\n", "test.conf", env={})
    plugin = context.make(kind, directive)
    context.problems.raise_first()
    context.run_on(None, FakeClock(), {})
    return plugin


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_every_parameter_is_told_of(kind, name):
    cls = registry.lookup(kind, name)
    assert cls.__doc__
    for item in declared(cls):
        assert item.doc, f"{cls.__name__}.{item.key}"


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_an_unknown_parameter_is_an_error_where_it_stands(kind, name):
    if kind == "buffer":  # configured by its output
        return
    context = context_of()
    (directive,) = parse(f"<x>\n@type {name}\nno_such_parameter 1\n</x>\n", "test.conf", env={})
    context.make(kind, directive)
    assert any('"no_such_parameter" in test.conf:3' in str(error) for error in context.problems.errors)


@pytest.mark.parametrize("name", FORMATTERS)
@settings(max_examples=40, deadline=None)
@given(tag=texts, time=st.integers(0, 2**62), record=records)
def test_a_formatter_returns_bytes_or_refuses_the_record(name, tag, time, record):
    formatter = make("formatter", name, FORMATTERS[name])
    before = copy.deepcopy(record)
    try:
        text = formatter.format(tag, time, record)
    except (ValueError, TypeError, OverflowError):
        assert name == "msgpack"
        return
    assert type(text) is bytes
    assert repr(record) == repr(before)
    assert formatter.format(tag, time, record) == text


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=40, deadline=None)
@given(text=st.binary() | texts.map(lambda text: text.encode("utf-8", "surrogateescape")))
def test_a_parser_takes_any_bytes(name, text):
    parser = make("parser", name, PARSERS[name])
    try:
        events = list(parser.parse(text))
    except ParserError:
        return
    for moment, record in events:
        assert moment is None or type(moment) is int
        assert record is None or type(record) is dict
