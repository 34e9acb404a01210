"""Declared parameters: filling, defaults, sections, and what is said when something is wrong."""

from __future__ import annotations

import pytest

from headrace.conf import fluent, fluent_ruby, values
from headrace.conf.params import (
    Configurable,
    Problems,
    any_,
    array,
    boolean,
    declared,
    declared_params,
    enum,
    hash_,
    integer,
    number,
    raw_section,
    regexp,
    reserved,
    section,
    size,
    string,
    symbol_list,
    time,
)
from headrace.errors import ConfError, Place


class Buffer(Configurable):
    chunk_keys = array(default=[], doc="Chunk keys")
    chunk_limit_size = size(default=8 << 20, doc="Limit")
    flush_mode = enum(["lazy", "interval", "immediate"], default=None, doc="Mode")


class Header(Configurable):
    name = string(doc="Name")


class Base(Configurable):
    kind = string(default=None, key="@type", doc="Type")
    plugin_id = string(default=None, key="@id", doc="Id")


class Output(Base):
    endpoint = string(doc="Where to", placeholders=True)
    open_timeout = time(default=60, doc="Seconds")
    password = string(default="", secret=True, doc="Secret")
    port = integer(default=None, doc="Port")
    reuse = boolean(default=False, alias="reuse_connections", doc="Reuse")
    old = string(default=None, deprecated="use endpoint", doc="Old")
    gone = string(obsoleted="use endpoint", doc="Gone")
    codes = array(default=[503], value_type=values.as_integer, doc="Codes")
    headers = hash_(default={}, value_type=values.as_string, doc="Headers")
    ratio = number(default=1, doc="Ratio")
    pattern = regexp(default=None, doc="Pattern")
    flags = symbol_list(["a", "b"], default=["a"], doc="Flags")
    anything = any_(default=None, doc="Any")
    buffer = section(Buffer, argument="chunk_keys", doc="Buffer")
    header = section(Header, multi=True, doc="Header")
    formatter = raw_section(name="format", doc="Format")
    stores = raw_section(name="store", multi=True, doc="Stores")


def configure(body: str, cls: type[Configurable] = Output, **options: bool) -> tuple[Configurable, Problems]:
    tree = fluent.parse(f"<match a.**>\n{body}\n</match>", "f.conf", env={})
    problems = Problems(**options)
    made = cls()
    made.configure(tree[0], problems)
    return made, problems


def errors(problems: Problems) -> list[str]:
    return [str(error) for error in problems.errors]


def test_values_are_typed() -> None:
    made, problems = configure(
        """@type http
        endpoint http://x/${tag}
        open_timeout 2m
        port 9000
        reuse_connections
        codes 500, 502
        headers {"A": "b", "n": 1}
        ratio 0.5
        pattern /x(?<n>y)/i
        flags a,b
        anything [1]
        <buffer tag, time>
          chunk_limit_size 1k
          flush_mode lazy
        </buffer>
        <header>
          name one
        </header>
        <header>
          name two
        </header>
        <format>
          @type json
        </format>"""
    )
    assert isinstance(made, Output)
    assert not problems.errors
    assert not problems.warnings
    assert (made.kind, made.endpoint, made.open_timeout, made.port, made.reuse) == (
        "http",
        "http://x/${tag}",
        120.0,
        9000,
        True,
    )
    assert (made.codes, made.headers, made.ratio) == ([500, 502], {"A": "b", "n": "1"}, 0.5)
    assert made.pattern is not None
    assert made.pattern.search("XY") is not None
    assert (made.flags, made.anything) == (["a", "b"], [1])
    assert made.buffer.present
    assert (made.buffer.chunk_keys, made.buffer.chunk_limit_size, made.buffer.flush_mode) == (
        ["tag", "time"],
        1024,
        "lazy",
    )
    assert [header.name for header in made.header] == ["one", "two"]
    assert made.formatter is not None
    assert reserved(made.formatter, "@type") == "json"
    assert made.stores == []
    assert [(item.name, value) for item, value in made.placeholder_texts()] == [("endpoint", "http://x/${tag}")]
    assert str(made.place_of("port")) == "f.conf:5"
    assert str(made.place_of("gone")) == "f.conf:1"


def test_defaults_are_own_copies() -> None:
    one, _ = configure("endpoint x")
    two, _ = configure("endpoint x")
    assert isinstance(one, Output)
    assert isinstance(two, Output)
    one.codes.append(1)
    one.buffer.chunk_keys.append("tag")
    assert two.codes == [503]
    assert two.buffer.chunk_keys == []
    assert Output.codes.default == [503]  # type: ignore[attr-defined]
    assert not one.buffer.present
    assert (one.open_timeout, type(one.open_timeout)) == (60.0, float)
    assert type(one.ratio) is float


def test_an_instance_that_is_not_configured_has_its_defaults() -> None:
    made = Output()
    assert made.open_timeout == 60.0
    assert made.buffer.chunk_limit_size == 8 << 20
    assert made.formatter is None
    assert made.gone is None
    with pytest.raises(AttributeError, match='"endpoint" is required'):
        _ = made.endpoint


def test_a_configured_value_is_a_plain_attribute() -> None:
    made, _ = configure("endpoint x")
    assert set(vars(made)) >= {"endpoint", "open_timeout", "port", "codes"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("open_timeout 1", ['parameter "endpoint" is required in f.conf:1 (in <match a.**>)']),
        ("@type http", ['parameter "endpoint" is required in f.conf:1 (in <match a.**> @type http)']),
        ("endpoint x\nopen_timeuot 1", ['unknown parameter "open_timeuot" in f.conf:3 (did you mean "open_timeout"?)']),
        ("endpoint x\nzzz 1", ['unknown parameter "zzz" in f.conf:3']),
        ("endpoint x\n<bufer>\n</bufer>", ['unknown section <bufer> in f.conf:3 (did you mean "buffer"?)']),
        (
            "endpoint x\nbuffer tag",
            ['unknown parameter "buffer" in f.conf:3 ("buffer" is a section: <buffer> ... </buffer>)'],
        ),
        ("endpoint x\n<port>\n</port>", ['unknown section <port> in f.conf:3 ("port" is a parameter: port VALUE)']),
        (
            "endpoint x\nopen_timeout abc\nport z",
            [
                'parameter "open_timeout": a time such as 0.5, 10s, 5m, 1h or 1d is needed, not "abc" in f.conf:3',
                'parameter "port": an integer is needed, not "z" in f.conf:4',
            ],
        ),
        ("endpoint x\ngone y", ['parameter "gone" is removed in f.conf:3 (use endpoint)']),
        ('endpoint "#{use_nil}"', ['parameter "endpoint" is required, but nil is given in f.conf:2']),
        (
            'endpoint x\nopen_timeout "#{use_nil}"',
            [
                'parameter "open_timeout" cannot be nil in f.conf:3 (leave it out, or write "#{use_default}" in the place of use_nil)'
            ],
        ),
        ('endpoint "#{use_default}"', ['parameter "endpoint" is required and has no default in f.conf:2']),
        (
            "endpoint x\n<buffer>\nflush_mode fast\n</buffer>",
            ['parameter "flush_mode": one of lazy, interval, immediate is needed, not "fast" in f.conf:4'],
        ),
        (
            "endpoint x\n<buffer>\n</buffer>\n<buffer>\n</buffer>",
            ["there is a second <buffer> section in f.conf:5 (it may stand once)"],
        ),
        ("endpoint x\n<header>\n</header>", ['parameter "name" is required in f.conf:3 (in <header>)']),
        ("endpoint x\n<header z>\nname y\n</header>", ["<header> takes no argument in f.conf:3"]),
    ],
)
def test_what_is_said(body: str, expected: list[str]) -> None:
    _, problems = configure(body)
    assert errors(problems) == expected


def test_unknown_is_a_warning_where_fluentd_warns() -> None:
    _, problems = configure("endpoint x\nzzz 1\n<nope>\n</nope>", unknown_is_error=False)
    assert not problems.errors
    assert [warning.message for warning in problems.warnings] == ['unknown parameter "zzz"', "unknown section <nope>"]


def test_warnings() -> None:
    made, problems = configure("endpoint x\nendpoint y\nold z\ntype http\nid me")
    assert isinstance(made, Output)
    assert not problems.errors
    assert [str(warning) for warning in problems.warnings] == [
        'parameter "endpoint" is given twice; the last one counts in f.conf:3',
        '"type" is deprecated in f.conf:5 (write @type)',
        '"id" is deprecated in f.conf:6 (write @id)',
        'parameter "old" is deprecated in f.conf:4 (use endpoint)',
    ]
    assert (made.endpoint, made.kind, made.plugin_id, made.old) == ("y", "http", "me", "z")


def test_nil_and_default() -> None:
    made, problems = configure('endpoint x\nport "#{use_nil}"\nopen_timeout "#{use_default}"')
    assert isinstance(made, Output)
    assert not problems.errors
    assert (made.port, made.open_timeout) == (None, 60.0)


def test_the_value_of_a_secret_is_not_shown() -> None:
    class Secret(Configurable):
        pin = integer(secret=True, doc="Pin")

    _, problems = configure("pin s3cret", Secret)
    assert errors(problems) == ['parameter "pin": the value is wrong in f.conf:2']


def test_a_subclass_changes_a_default_and_takes_a_parameter_away() -> None:
    class Small(Buffer):
        chunk_limit_size = Buffer.chunk_limit_size.with_default(5)  # type: ignore[attr-defined]
        flush_mode = None  # type: ignore[assignment]

    made, problems = configure("flush_mode lazy", Small)
    assert isinstance(made, Small)
    assert made.chunk_limit_size == 5
    assert errors(problems) == ['unknown parameter "flush_mode" in f.conf:2']
    assert Buffer().chunk_limit_size == 8 << 20


def test_validate_is_called_when_every_value_is_well_formed() -> None:
    class Checked(Configurable):
        low = integer(default=1, doc="Low")
        high = integer(default=2, doc="High")

        def validate(self, problems: Problems) -> None:
            if self.low > self.high:
                problems.error("low is above high", self.place_of("low"))

    assert errors(configure("low 3", Checked)[1]) == ["low is above high in f.conf:2"]
    assert len(errors(configure("low x", Checked)[1])) == 1


def test_required_section() -> None:
    class Needs(Configurable):
        header = section(Header, required=True)

    assert errors(configure("", Needs)[1]) == ["a <header> section is required in f.conf:1"]


def test_declarations_come_in_order_bases_first() -> None:
    assert [item.key for item in declared_params(Output)][:4] == ["@type", "@id", "endpoint", "open_timeout"]
    assert [item.key for item in declared(Output)][-4:] == ["buffer", "header", "format", "store"]


def test_raise_first() -> None:
    _, problems = configure("")
    with pytest.raises(Exception, match="endpoint"):
        problems.raise_first()


@pytest.mark.parametrize(
    ("lines", "hint"),
    [("endpoint x\nport nil", '"#{use_nil}"'), ("endpoint x\nopen_timeout nil", "leave it out for its default")],
)
def test_nil_that_is_written_as_text_is_told_how_it_is_written(lines: str, hint: str) -> None:
    (error,) = configure(lines)[1].errors
    assert hint in error.hint


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("Dir.pwd", "/work"),
        ("Dir.getwd() + '/x'", "/work/x"),
        ("File.join(Dir.pwd, 'a/', '/b')", "/work/a/b"),
        ("File.join(ENV['D'], 'b')", "d//b"),
        ("File.join('', 'a', '')", "/a/"),
        ("File.join('a', '//b')", "a//b"),
        ("File.join('/', '/b')", "/b"),
        ("File.join()", ""),
    ],
)
def test_paths_of_embedded_ruby(code: str, value: str) -> None:
    around = fluent_ruby.Surroundings(env={"D": "d//"}, folder=lambda: "/work")
    assert fluent_ruby.evaluate(code + "}", 0, Place("f.conf", 1), around)[0] == value


@pytest.mark.parametrize(
    "code", ["Dir.glob('*')", "Dir.pwd(1)", "File.read('x')", "File.join(1)", "File.join(nil, 'a')"]
)
def test_no_other_ruby_touches_the_disk(code: str) -> None:
    with pytest.raises(ConfError, match="embedded Ruby is not supported here"):
        fluent_ruby.evaluate(code + "}", 0, Place("f.conf", 1), fluent_ruby.Surroundings(env={}))
