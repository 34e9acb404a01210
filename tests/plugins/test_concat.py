"""Filter concat."""

import pytest

from headrace.testing.contracts import check_filter
from headrace.testing.pipelines import Direct, Kit

ERRORS = "<label @ERROR>\n<match **>\n@type direct\n@id errors\n</match>\n</label>\n<label @LATE>\n<match **>\n@type direct\n@id late\n</match>\n</label>"


def kit_of(lines):
    return Kit(f"<filter **>\n@type concat\n{lines}\n</filter>\n<match **>\n@type direct\n@id main\n</match>\n{ERRORS}")


class Sinks:
    def __init__(self, kit):
        self.kit = kit

    def __getattr__(self, name):
        (sink,) = [one for one in self.kit.pipeline.plugins if isinstance(one, Direct) and one.plugin_id == name]
        return sink.events

    @property
    def texts(self):
        return [record.get("m") for _, _, record in self.main]


async def run(lines, *records):
    kit = await kit_of(lines).start()
    for number, record in enumerate(records):
        await kit.emit("t", record, time=number)
    return kit, Sinks(kit)


def texts(*found):
    return [{"m": text} for text in found]


@pytest.mark.parametrize(
    ("lines", "given", "found"),
    [
        ("n_lines 2", ["a", "b", "c", "d", "e"], ["a\nb", "c\nd"]),
        ('n_lines 3\nseparator ""', ["a", "b", "c"], ["abc"]),
        ("multiline_start_regexp /^S/", ["x", "S1", " a", " b", "S2", "S3"], ["x", "S1\n a\n b", "S2"]),
        ("multiline_end_regexp /E$/", ["a", "bE", "cE", "d"], ["a\nbE", "cE"]),
        (
            "multiline_start_regexp /^S/\nmultiline_end_regexp /E$/",
            ["S1", "a", "bE", "SE", "c"],
            ["S1\na\nbE", "SE", "c"],
        ),
        ("multiline_start_regexp /^S/\nmultiline_end_regexp /E$/", ["S1", "S2E", "x"], ["S1", "S2E", "x"]),
        (
            "multiline_start_regexp /^S/\ncontinuous_line_regexp /^ /",
            ["S1", " a", "b", " c", "S2"],
            ["S1\n a", "b", " c"],
        ),
    ],
)
async def test_lines_become_texts(lines, given, found):
    kit, sinks = await run(f"key m\n{lines}", *texts(*given))
    assert sinks.texts == found
    await kit.stop()


async def test_streams_are_told_apart_and_other_records_pass():
    kit, sinks = await run(
        "key m\nn_lines 2\nstream_identity_key id",
        {"m": "a", "id": 1},
        {"m": "x", "id": 2},
        {"other": 1},
        {"m": "b", "id": 1},
    )
    assert [record for _, _, record in sinks.main] == [{"other": 1}, {"m": "a\nb", "id": 1}]
    await kit.stop()
    assert [record for _, _, record in sinks.errors] == [{"m": "x", "id": 2}]


@pytest.mark.parametrize(("first", "time"), [("true", 0), ("false", 1)])
async def test_which_time_counts(first, time):
    kit, sinks = await run(f"key m\nn_lines 2\nuse_first_timestamp {first}", *texts("a", "b"))
    assert [at for _, at, _ in sinks.main] == [time]
    await kit.stop()


@pytest.mark.parametrize(("keep", "left"), [("true", {"p": "false"}), ("false", {})])
async def test_partial_key(keep, left):
    lines = f'key m\npartial_key p\npartial_value true\nkeep_partial_key {keep}\nseparator ""'
    kit, sinks = await run(
        lines, {"m": "a", "p": "true"}, {"m": "b", "p": "true"}, {"m": "c", "p": "false"}, {"m": "d"}
    )
    found = [record for _, _, record in sinks.main]
    assert [record["m"] for record in found] == ["abc", "d"]
    assert found[0].get("p") == (left.get("p") and "true")
    await kit.stop()


@pytest.mark.parametrize(
    ("method", "found"), [("ignore", ["aaabbbccc"]), ("truncate", ["aaabbb"]), ("drop", []), ("new", ["aaabbb", "ccc"])]
)
async def test_a_full_stream(method, found):
    lines = (
        f'key m\npartial_key p\npartial_value 1\nseparator ""\nbuffer_limit_size 12\nbuffer_overflow_method {method}'
    )
    kit, sinks = await run(lines, {"m": "aaa", "p": "1"}, {"m": "bbb", "p": "1"}, {"m": "ccc", "p": "0"})
    assert sinks.texts == found
    await kit.stop()


@pytest.mark.parametrize("form", ["docker-fluentd", "docker-journald-lowercase"])
async def test_partial_metadata(form):
    head = "partial_" if form == "docker-fluentd" else "container_partial_"

    def part(text, ordinal, last):
        return {
            "m": text,
            head + "message": "true",
            head + "id": "x",
            head + "ordinal": str(ordinal),
            head + "last": last,
        }

    lines = f'key m\nuse_partial_metadata true\npartial_metadata_format {form}\nseparator ""'
    kit, sinks = await run(lines, part("b", 2, "false"), part("a", 1, "false"), part("c", 3, "true"), {"m": "alone"})
    assert [record for _, _, record in sinks.main] == [{"m": "abc"}, {"m": "alone"}]
    await kit.stop()


async def test_cri():
    lines = 'key m\nuse_partial_cri_logtag true\npartial_cri_logtag_key logtag\nseparator ""'
    kit, sinks = await run(
        lines,
        {"m": "a", "logtag": "P", "stream": "stdout"},
        {"m": "b", "logtag": "F", "stream": "stdout"},
        {"m": "c", "logtag": 5},
    )
    assert [record for _, _, record in sinks.main] == [{"m": "ab"}]
    assert [record for _, _, record in sinks.errors] == [{"m": "c", "logtag": 5}]
    await kit.stop()


async def test_what_stays_incomplete_is_given_up_in_time():
    kit, sinks = await run(
        "key m\nmultiline_start_regexp /^S/\nflush_interval 3s\ntimeout_label @LATE", *texts("S1", "a")
    )
    await kit.clock.elapse(2)
    assert sinks.late == []
    await kit.clock.elapse(3)
    assert [record for _, _, record in sinks.late] == [{"m": "S1\na"}]
    assert kit.pipeline.stats()["plugins"]["filter_concat.1"]["streams"] == 0
    await kit.stop()
    assert len(sinks.late) == 1


async def test_the_rest_goes_at_the_end():
    kit, sinks = await run("key m\nmultiline_start_regexp /^S/\nflush_interval 0", *texts("S1", "a"))
    await kit.clock.elapse(200)
    await kit.stop()
    assert [record for _, _, record in sinks.errors] == [{"m": "S1\na"}]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("key m", "is required"),
        ("n_lines 2", '"key" is required'),
        ("key m\nn_lines 2\nmultiline_start_regexp /a/", "exclude each other"),
        ("key m\npartial_key p", "needs partial_value"),
        ("key m\nuse_partial_cri_logtag true", "needs partial_cri_logtag_key"),
        ("key m\nn_lines 0", "at least 1"),
        ("key m\nn_lines 2\ntimeout_label @NO", "not defined"),
        ("key m\nn_lines 2\ncontinuous_line_regexp /x/", "continuous_line_regexp needs"),
    ],
)
def test_what_is_refused(lines, message):
    kit = kit_of(lines)
    assert any(message in error for error in kit.errors), kit.errors


@pytest.mark.parametrize("lines", ["key message\nmultiline_start_regexp /^p/", "key a\nn_lines 2"])
async def test_contract(lines):
    await check_filter(f"<filter **>\n@type concat\n{lines}\n</filter>")
