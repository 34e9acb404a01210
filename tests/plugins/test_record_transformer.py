"""Filter record_transformer."""

import pytest
from zone_rig import local_zone

from headrace.testing.contracts import check_filter
from headrace.testing.pipelines import Direct, Kit

TIME = 1_700_000_000_123_456_789
ERRORS = "<label @ERROR>\n<match **>\n@type direct\n@id errors\n</match>\n</label>"


def kit_of(lines):
    return Kit(
        f"<filter **>\n@type record_transformer\n{lines}\n</filter>\n<match **>\n@type direct\n@id main\n</match>\n{ERRORS}"
    )


async def run(lines, *records, tag="a.b.c"):
    kit = await kit_of(lines).start()
    await kit.emit(tag, *records, time=TIME)
    await kit.stop()
    sinks = {one.plugin_id: one.events for one in kit.pipeline.plugins if isinstance(one, Direct)}
    return [(time, record) for _, time, record in sinks["main"]], [record for _, _, record in sinks["errors"]]


def fields(*lines, more=""):
    return more + "\n<record>\n" + "\n".join(lines) + "\n</record>"


@pytest.mark.parametrize(
    ("lines", "record", "found"),
    [
        (fields("tag ${tag}", "x y"), {"m": 1}, {"m": 1, "tag": "a.b.c", "x": "y"}),
        (fields("h ${hostname}", "t ${tag_parts[1]}-${tag_parts[-1]}"), {}, {"h": "localhost", "t": "b-c"}),
        (fields("p ${tag_prefix[1]}", "s ${tag_suffix[-1]}", "none ${tag_parts[7]}"), {}, {"p": "a.b", "s": "c", "none": None}),
        (fields('n ${record["n"]}', 'm <${record["n"]}>'), {"n": 5}, {"n": 5, "m": "<5>"}),
        (fields('n ${record["n"]}', more="auto_typecast false"), {"n": 5}, {"n": "5"}),
        (fields('b ${record["a"]["b"][1]}', 'c ${record.dig("a", "b")}', 'd ${record["x"]["y"]}'), {"a": {"b": [1, 2]}}, {"a": {"b": [1, 2]}, "b": 2, "c": [1, 2], "d": None}),
        (fields('${tag_parts[0]}_${record["k"]} v'), {"k": "key"}, {"k": "key", "a_key": "v"}),
        (fields('h {"a":"${tag}","b":[1,"${hostname}",null,true]}'), {}, {"h": {"a": "a.b.c", "b": [1, "localhost", None, True]}}),
        (fields("q '[\"${tag}\"]'", "bad '[nope'"), {}, {"q": ["a.b.c"], "bad": "[nope"}),
        (fields("new 1", more="renew_record true\nkeep_keys a,b"), {"a": 1, "c": 2}, {"a": 1, "new": "1"}),
        ("remove_keys a,$.n.x,$['n']['l'][0]", {"a": 1, "n": {"x": 1, "y": 2, "l": [1, 2]}}, {"n": {"y": 2, "l": [2]}}),
        (fields("a.b ${tag}"), {}, {"a.b": "a.b.c"}),
        (fields('x "#{use_nil}"'), {}, {"x": None}),
        (fields("x __HOSTNAME__"), {}, {"x": None}),
        (fields("t ${time}"), {}, {"t": "2023-11-14 22:13:20 +0000"}),
        (fields('avg ${record["total"] / record["count"]}', more="enable_ruby"), {"total": 100, "count": 10}, {"total": 100, "count": 10, "avg": 10}),
        (fields("j ${record.to_json}", 't ${time.strftime("%Y")}', more="enable_ruby true"), {"a": 1}, {"a": 1, "j": '{"a":1}', "t": "2023"}),
        (fields('a ${tag.gsub(".", "-")}', 'b x${tag_parts.last}y${1 + 1}', "c plain", more="enable_ruby true"), {}, {"a": "a-b-c", "b": "xcy2", "c": "plain"}),
        (fields('foo_${record["key"]} bar_${record["value"]}', more="enable_ruby true"), {"key": "k", "value": "v"}, {"key": "k", "value": "v", "foo_k": "bar_v"}),
        (fields('n ${record["n"] + 1}', more="enable_ruby true\nauto_typecast false"), {"n": 1}, {"n": "2"}),
        (fields('u ${record["s"].upper()}', 'v ${len(record)} of ${ {"a": 1}["a"] }', more="enable_python true"), {"s": "x"}, {"s": "x", "u": "X", "v": "1 of 1"}),
    ],
)  # fmt: skip
async def test_records(lines, record, found):
    with local_zone("UTC"):
        events, errors = await run(lines, record)
    assert errors == []
    assert events == [(TIME, found)]


async def test_a_record_whose_expression_fails_goes_to_error_alone():
    good, bad = {"a": {"b": 1}}, {"a": None}
    events, errors = await run(fields('x ${record["a"]["b"]}', more="enable_ruby true"), good, bad, good)
    assert [record["x"] for _, record in events] == [1, 1]
    assert errors == [bad]


async def test_what_fails_for_a_whole_batch_fails_for_each_record():
    events, errors = await run(fields("x ${tag_parts[9].upcase}", more="enable_ruby true"), {"n": 1}, {"n": 2})
    assert events == []
    assert errors == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("value", "time"),
    [(5, 5 * 10**9), (1.5, 1_500_000_000), ("1362020400.25", 1_362_020_400_250_000_000), (None, 0)],
)
async def test_the_time_of_an_event_is_renewed(value, time):
    events, _ = await run("renew_time_key at\nremove_keys at", {"at": value, "m": 1})
    assert events == [(time, {"m": 1})]
    assert (await run("renew_time_key at", {"m": 1}))[0][0][0] == TIME


async def test_large_batches_keep_their_order():
    events, _ = await run(fields("x ${tag}"), *[{"n": number} for number in range(5001)])
    assert [record["n"] for _, record in events] == list(range(5001))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (fields("x ${system('ls')}", more="enable_ruby true"), "system is not supported"),
        (fields("x ${record.delete('a')}", more="enable_ruby true"), "nothing can be changed"),
        (fields("x ${nope}", more="enable_ruby true"), 'unknown name "nope", at character 1 in test.conf:5'),
        (fields("x ${nope}", more="enable_ruby true"), 'the field is record["nope"]'),
        (fields("x ${open('x')}", more="enable_python true"), "cannot be called"),
        (fields("x ${record", more="enable_python true"), "has no }"),
        (fields('x "#{use_default}"'), "a field has no default"),
        ("keep_keys a", "keep_keys needs renew_record"),
        ("enable_ruby true\nenable_python true", "exclude each other"),
        ("remove_keys $.", "names no key"),
    ],
)
def test_what_is_refused(lines, message):
    kit = kit_of(lines)
    assert any(message in error for error in kit.errors), kit.errors


def test_an_unknown_placeholder_is_told():
    kit = kit_of(fields("x ${record['msg'].upcase}"))
    assert any(
        "unknown placeholder" in str(warning) and "enable_ruby" in str(warning) for warning in kit.problems.warnings
    )


@pytest.mark.parametrize(
    "lines",
    [
        fields('x ${record["a"]}', "y ${tag}", more="remove_keys $.nested.list,m"),
        fields('x ${record["message"].upcase}', "y ${record.to_json}", more="enable_ruby true"),
        fields('x ${record["message"]}', more="enable_python true\nrenew_time_key a"),
    ],
)
async def test_contract(lines):
    await check_filter(f"<filter **>\n@type record_transformer\n{lines}\n</filter>")
