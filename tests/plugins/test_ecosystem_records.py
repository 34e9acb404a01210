"""Outputs rewrite_tag_filter, record_modifier and detect_exceptions, filter record_modifier, parsers multi_format and cri."""

import pytest

from headrace.pipeline.event import Batch
from headrace.plugins.out_rewrite_tag_filter import RewriteTagFilterOutput
from headrace.testing.contracts import check_filter, check_output, check_parser, make
from headrace.testing.pipelines import Direct, Kit

SINKS = "<match **>\n@type direct\n@id main\n</match>\n<label @L>\n<match **>\n@type direct\n@id labelled\n</match>\n</label>\n"
SINKS += "<label @ERROR>\n<match **>\n@type direct\n@id errors\n</match>\n</label>"


def kit_of(section):
    return Kit(f"{section}\n{SINKS}")


def at(kit, name):
    (sink,) = [one for one in kit.pipeline.plugins if isinstance(one, Direct) and one.plugin_id == name]
    return sink.events


async def run(section, *records, tag="app.x.y"):
    kit = await kit_of(section).start()
    await kit.emit(tag, *records, time=7)
    return kit


def rewrite(lines):
    return f"<match app.**>\n@type rewrite_tag_filter\n{lines}\n</match>"


def rule(key, pattern, tag, more=""):
    return f"<rule>\nkey {key}\npattern {pattern}\ntag {tag}\n{more}\n</rule>\n"


@pytest.mark.parametrize(
    ("lines", "record", "tags"),
    [
        (rule("m", "/^a(b+)(c)?/", "new.$1.$2"), {"m": "abb"}, ["new.bb."]),
        (rule("m", "/^a(b+)/", "new.$1") + rule("m", "/.+/", "other"), {"m": "x"}, ["other"]),
        (rule("$.a.b", "/^(\\w+)$/", "$1.${tag}"), {"a": {"b": "v"}}, ["v.app.x.y"]),
        (rule("m", "/./", "z.${tag_parts[1]}.__TAG_PARTS[2]__.${tag_parts[9]}"), {"m": "1"}, ["z.x.y."]),
        (rule("m", "/./", "z.${tag}") + "\nremove_tag_prefix app", {"m": "1"}, ["z.x.y"]),
        (rule("m", "/./", "z.__TAG__") + "\nremove_tag_regexp /^[^.]+\\.x\\./", {"m": "1"}, ["z.y"]),
        (rule("m", "/./", "${hostname}.__HOSTNAME__"), {"m": "1"}, ["localhost.localhost"]),
        (rule("m", "/^(.*)$/", "$1") + "\ncapitalize_regex_backreference true", {"m": "hELLO"}, ["Hello"]),
        (rule("m", "/^x/", "not", "invert true"), {"m": "y"}, ["not"]),
        (rule("m", "/^x/", "not", "invert true"), {}, ["not"]),
        (rule("m", "/^x/", "not", "invert true"), {"m": "x"}, []),
        (rule("m", "/.*/", "empty"), {"m": ""}, []),
        (rule("m", "/./", "app.x.y"), {"m": "1"}, []),
        (rule("n", "/^5$/", "five") + "\nemit_mode record", {"n": 5}, ["five"]),
    ],
)
async def test_tags_are_rewritten(lines, record, tags):
    kit = await run(rewrite(lines), record)
    assert [(tag, found) for tag, _, found in at(kit, "main")] == [(tag, record) for tag in tags]
    await kit.stop()


async def test_a_rule_may_name_a_label_and_keep_the_tag():
    kit = await run(
        rewrite(rule("m", "/a/", "${tag}", "label @L") + rule("m", "/b/", "b")), {"m": "a"}, {"m": "b"}, {"m": "a2"}
    )
    assert [record["m"] for _, _, record in at(kit, "labelled")] == ["a", "a2"]
    assert [tag for tag, _, _ in at(kit, "labelled")] == ["app.x.y"] * 2
    assert [tag for tag, _, _ in at(kit, "main")] == ["b"]
    await kit.stop()


async def test_parts_of_a_batch_have_names_of_their_own_which_stay_the_same():
    kit = await kit_of(rewrite(rule("m", "/^(.)/", "$1"))).start()
    names = []
    for _ in range(2):
        seen = []
        kit.pipeline.router._hot = {
            tag: (lambda tag, part, seen=seen: seen.append((tag, part.id, part.ack))) for tag in "ab"
        }
        batch = Batch.of([(1, {"m": "a"}), (2, {"m": "b"})])
        batch.id, batch.ack = b"x" * 16, 2
        kit.of(RewriteTagFilterOutput).process("app.x", batch)
        names.append(seen)
    assert names[0] == names[1]
    (first, second) = names[0]
    assert first[1] != second[1]
    assert {first[2], second[2]} == {2}
    await kit.stop()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "<rule> section is required"),
        (rule("m", "/a/", "x") * 2, "second rule"),
        (rule("m", "/a/", "x") + "\nhostname_command hostname -s", "no command is run"),
        (rule("m", "/a/", "x.${tag_parts[0..1]}"), "takes no range"),
        (rule("m", "/a/", "x") + "\nremove_tag_prefix a\nremove_tag_regexp /a/", "exclude each other"),
        ("rewriterule1 m a b", "use a <rule> section"),
        (rule("m", "/(/", "x"), "invalid pattern"),
        (rule("m", "/a/", "x", "label @NO"), "not defined"),
    ],
)
def test_rewriting_refuses(lines, message):
    kit = kit_of(rewrite(lines))
    assert any(message in error for error in kit.errors), kit.errors


MODIFY = "<filter **>\n@type record_modifier\n{}\n</filter>"


@pytest.mark.parametrize(
    ("lines", "record", "found"),
    [
        ("<record>\na x\nb ${tag}-${tag_parts[0]}\n</record>", {"m": 1}, {"m": 1, "a": "x", "b": "app.x.y-app"}),
        ("<record>\na ${record['m'] + 1}\nb ${record['a'] * 2}\n</record>", {"m": 1}, {"m": 1, "a": 2, "b": 4}),
        ("<record>\nt ${Time.at(time).to_i}\n</record>", {}, {"t": 0}),
        ('<record>\nj {"a":1}\n</record>', {}, {"j": '{"a":1}'}),
        ("remove_keys a,$.n.x", {"a": 1, "n": {"x": 1, "y": 2}}, {"n": {"y": 2}}),
        ("whitelist_keys a, b\n<record>\nc 1\n</record>", {"b": 2, "a": 1, "z": 3}, {"a": 1, "b": 2, "c": "1"}),
        ("<replace>\nkey k\nexpression /^(?<s>.+).{2}(?<e>.+)$/\nreplace \\k<s>ors\\k<e>\n</replace>", {"k": "hoge"}, {"k": "horse"}),
        ("<replace>\nkey k\nexpression /^(.{1}).{2}(.{1})$/\nreplace \\1ors\\2\n</replace>", {"k": "hoge", "x": 1}, {"k": "horse", "x": 1}),
        ("char_encoding utf-8", {"k": "é"}, {"k": "é"}),
        ("char_encoding iso-8859-1:utf-8", {"k": "\udce9", "n": [{"x": "\udce8"}]}, {"k": "é", "n": [{"x": "è"}]}),
        ("char_encoding utf-8:iso-8859-1", {"k": "é"}, {"k": "\udce9"}),
    ],
)  # fmt: skip
async def test_records_are_modified(lines, record, found):
    kit = await run(MODIFY.format(lines), record)
    assert [one for _, _, one in at(kit, "main")] == [found]
    await kit.stop()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("prepare_value @x = 1", "cannot run here"),
        ("remove_keys a\nwhitelist_keys b", "exclude each other"),
        ("char_encoding nope:utf-8", "nope"),
        ("<record>\nx ${@foo.bar}\n</record>", 'field "x": unexpected'),
    ],
)
def test_modifying_refuses(lines, message):
    kit = kit_of(MODIFY.format(lines))
    assert any(message in error for error in kit.errors), kit.errors


@pytest.mark.parametrize(("tag", "tags"), [("new", ["new", "new"]), ('foo.${record["k"]}', ["foo.a", "foo.b"])])
async def test_the_output_changes_records_and_tags(tag, tags):
    section = f"<match app.**>\n@type record_modifier\ntag {tag}\n<record>\nx 1\n</record>\n</match>"
    kit = await run(section, {"k": "a"}, {"k": "b"})
    assert [(name, record) for name, _, record in at(kit, "main")] == [
        (name, {"k": key, "x": "1"}) for name, key in zip(tags, "ab", strict=True)
    ]
    await kit.stop()


JAVA = [
    'Exception in thread "main" java.lang.RuntimeException: x',
    "\tat a.B.c(B.java:1)",
    "Caused by: java.io.Error: y",
    "\tat d",
    "\t... 3 more",
]
PYTHON = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()", "ValueError: no"]
GO = [
    "panic: my panic",
    "",
    "goroutine 4 [running]:",
    "panic(0x45cb40, 0x47ad70)",
    "\t/usr/lib/go/panic.go:542",
    "created by main.main",
    "\t/x.go:3",
]
PHP = [
    "exception 'Exception' with message 'x' in a.php:1",
    "Stack trace:",
    "#0 b.php(2): f()",
    "#1 {main}",
    "  thrown in a.php on line 1",
]
RUBY = ["NoMethodError (undefined method):", "  ", "  app/x.rb:1:in `f'"]
DART = ["Unhandled exception:", "Instance of 'X'", "#0      main (file:///a.dart:1:1)", "<asynchronous suspension>"]


@pytest.mark.parametrize(
    ("languages", "trace"),
    [
        ("java", JAVA),
        ("all", JAVA),
        ("python", PYTHON),
        ("go", GO),
        ("php", PHP),
        ("ruby", RUBY),
        ("dart", DART),
        ("csharp, js", JAVA),
    ],
)
async def test_the_lines_of_a_trace_are_one_event(languages, trace):
    section = f"<match app.**>\n@type detect_exceptions\nremove_tag_prefix app\nmessage m\nlanguages {languages}\nforce_line_breaks true\n</match>"
    lines = ["before", *trace, "after", "more"]
    kit = await run(section, *[{"m": line, "n": number} for number, line in enumerate(lines)])
    assert [record["m"] for _, _, record in at(kit, "main")] == ["before", "\n".join(trace), "after", "more"]
    assert [record["n"] for _, _, record in at(kit, "main")] == [0, 1, len(trace) + 1, len(trace) + 2]
    assert {tag for tag, _, _ in at(kit, "main")} == {"x.y"}
    await kit.stop()


async def test_another_language_is_none():
    section = "<match app.**>\n@type detect_exceptions\nremove_tag_prefix app\nlanguages python\n</match>"
    kit = await run(section, *[{"log": line} for line in JAVA], {"other": 1})
    assert len(at(kit, "main")) == len(JAVA) + 1
    await kit.stop()


async def test_streams_limits_and_the_end():
    head = "<match app.**>\n@type detect_exceptions\nremove_tag_prefix app\nmessage m\n{}\n</match>"
    kit = await run(head.format("stream id"), *[{"m": line, "id": one} for line in PYTHON[:3] for one in "ab"])
    assert at(kit, "main") == []
    await kit.stop()
    assert [record["id"] for _, _, record in at(kit, "main")] == ["a", "b"]
    assert at(kit, "main")[0][2]["m"] == "".join(PYTHON[:3])
    kit = await run(head.format("max_lines 2"), *[{"m": line} for line in JAVA])
    assert at(kit, "main")[0][2]["m"] == "".join(JAVA[:2])
    await kit.stop()
    kit = await run(head.format("multiline_flush_interval 2s"), {"m": JAVA[0]}, {"m": JAVA[1]})
    assert at(kit, "main") == []
    await kit.clock.elapse(4)
    assert [record["m"] for _, _, record in at(kit, "main")] == ["".join(JAVA[:2])]
    await kit.stop()


@pytest.mark.parametrize(
    "section",
    [
        "<match app.**>\n@type detect_exceptions\nremove_tag_prefix other\n</match>",
        "<match app.**>\n@type record_modifier\ntag app.x.y\n</match>",
        "<match app.**>\n@type record_modifier\ntag ${tag}\n</match>",
    ],
)
async def test_events_do_not_go_round_for_ever(section):
    kit = await run(section, {"m": "a"})
    assert [record for _, _, record in at(kit, "errors")] == [{"m": "a"}]
    await kit.stop()


def test_an_unknown_language_is_refused():
    kit = kit_of("<match app.**>\n@type detect_exceptions\nremove_tag_prefix app\nlanguages cobol\n</match>")
    assert any("unknown language cobol" in error for error in kit.errors)


MULTI = """@type multi_format
format_key f
<pattern>
  format json
  format_name j
</pattern>
<pattern>
  @type regexp
  expression /^(?<w>\\w+)$/
  types w:integer
</pattern>
<pattern>
  format none
</pattern>"""


@pytest.mark.parametrize(
    ("text", "record"),
    [('{"a":1}', {"a": 1, "f": "j"}), ("42", {"w": 42, "f": "regexp#1"}), ("a b", {"message": "a b", "f": "none#2"})],
)
def test_multi_format_takes_the_first_that_can(text, record):
    assert [one for _, one in make("parser", MULTI).parse(text.encode())] == [record]


def test_multi_format_takes_a_pattern_as_its_format():
    parser = make("parser", "@type multi_format\n<pattern>\nformat /^(?<a>\\d+)$/\ntypes a:integer\n</pattern>")
    assert [record for _, record in parser.parse(b"12")] == [{"a": 12}]


def test_multi_format_takes_none():
    parser = make("parser", "@type multi_format\n<pattern>\nformat json\ntime_type string\ntime_format %Y\n</pattern>")
    assert parser.parse(b'{"time":"x"}') == [(None, None)]
    check_parser(parser)


@pytest.mark.parametrize(
    ("lines", "text", "found"),
    [
        ("", "2020-10-10T00:10:00.333333333Z stdout F Hello  Fluentd", (1602288600_333333333, {"stream": "stdout", "logtag": "F", "message": "Hello  Fluentd", "time": "2020-10-10T00:10:00.333333333Z"})),
        ("keep_time_key false", "2020-10-10T00:10:00.3Z stderr P ", (1602288600_300000000, {"stream": "stderr", "logtag": "P", "message": ""})),
        ("<parse>\n@type json\n</parse>", '2020-10-10T00:10:00.3Z stdout F {"a":1,"time":5}', (5 * 10**9, {"a": 1, "stream": "stdout", "logtag": "F"})),
        ("merge_cri_fields false\n<parse>\n@type json\n</parse>", '2020-10-10T00:10:00.3Z stdout F {"a":1,"time":5}', (5 * 10**9, {"a": 1})),
        ("", "too few", (None, None)),
    ],
)  # fmt: skip
def test_cri(lines, text, found):
    assert make("parser", f"@type cri\n{lines}").parse(text.encode()) == [found]


@pytest.mark.parametrize(
    "lines", ["remove_keys a", "<record>\nx ${record['message'].upcase}\n</record>\nchar_encoding utf-8:euc-jp"]
)
async def test_filter_contract(lines):
    await check_filter(MODIFY.format(lines))


@pytest.mark.parametrize(
    "text",
    [
        rewrite(rule("message", "/(.)/", "$1")),
        "<match a.**>\n@type detect_exceptions\nremove_tag_prefix a\n</match>\n<match **>\n@type direct\n</match>",
        "<match a.**>\n@type record_modifier\ntag x.${record['message']}\n</match>\n<match **>\n@type direct\n</match>",
    ],
)
async def test_output_contract(text):
    await check_output(text)
