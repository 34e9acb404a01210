"""Filter grep."""

import pytest

from headrace.pipeline.event import Batch
from headrace.plugins import guard as guards
from headrace.plugins.filter_grep import GrepFilter
from headrace.testing.pipelines import Direct, Kit

RECORDS = [
    {"m": "It's cool outside today", "host": "web001.example.com"},
    {"m": "That's not cool", "host": "web1337.example.com"},
    {"m": "I am cool but you are uncool", "host": "db001.example.com"},
    {"host": "web001.example.com"},
    {"m": "It's cool outside today"},
    {"m": {"nested": "cool"}, "n": 5},
]


def one(kind, key, pattern):
    return f"<{kind}>\nkey {key}\npattern {pattern}\n</{kind}>"


COOL, WEB, UNCOOL = one("regexp", "m", "/cool/"), one("regexp", "host", r"/^web\d+/"), one("exclude", "m", "/uncool/")
NOT_WEB, NOT_COOL = one("exclude", "host", r"/^web\d+/"), one("exclude", "m", "/cool/")


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (COOL, [0, 1, 2, 4, 5]),
        (COOL + "\n" + WEB, [0, 1]),
        (COOL + "\n" + UNCOOL, [0, 1, 4, 5]),
        (f"<or>\n{COOL}\n{WEB}\n</or>", [0, 1, 2, 3, 4, 5]),
        (f"<and>\n{COOL}\n{WEB}\n</and>", [0, 1]),
        (f"<and>\n{NOT_WEB}\n{NOT_COOL}\n</and>", [2, 3, 4, 5]),
        (f"<or>\n{NOT_WEB}\n{NOT_COOL}\n</or>", []),
        (one("regexp", "$.m.nested", "/^cool$/"), [5]),
        (one("regexp", "n", "/^5$/"), [5]),
        (one("regexp", "m", "/COOL outside/i"), [0, 4]),
        ("regexp1 m cool\nexclude1 m uncool", [0, 1, 4, 5]),
    ],
)
async def test_what_is_kept(lines, kept):
    kit = await Kit(f"<filter **>\n@type grep\n{lines}\n</filter>\n<match **>\n@type direct\n</match>").start()
    await kit.emit("t", *RECORDS)
    assert [RECORDS.index(record) for _, _, record in kit.of(Direct).events] == kept
    await kit.stop()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (COOL + "\n" + COOL, "two conditions"),
        (f"<and>\n{COOL}\n{UNCOOL}\n</and>", "<and> cannot have <regexp> and <exclude> both"),
        ("<regexp>\nkey m\n</regexp>", '"pattern" is required'),
        ("regexp1 m", '"pattern" is required'),
        ("regexp21 m x", 'unknown parameter "regexp21"'),
    ],
)
def test_what_is_refused(lines, message):
    kit = Kit(f"<filter **>\n@type grep\n{lines}\n</filter>\n<match **>\n@type direct\n</match>")
    assert any(message in error for error in kit.errors), kit.errors


async def test_a_batch_of_which_all_is_kept_stays_as_it_is():
    kit = await Kit(f"<filter **>\n@type grep\n{COOL}\n</filter>\n<match **>\n@type direct\n</match>").start()
    batch = Batch.of([(1, RECORDS[0]), (2, RECORDS[1])])
    assert kit.of(GrepFilter).filter_batch("t", batch) is batch
    assert kit.of(GrepFilter).filter_batch("t", Batch.of([(1, RECORDS[0]), (2, {})])).count == 1
    await kit.stop()


async def test_a_pattern_that_takes_for_ever_costs_its_record_only(monkeypatch):
    monkeypatch.setattr(guards, "INTERVAL", 0.05)
    guards.guard.disarm()
    text = "<filter **>\n@type grep\n<regexp>\nkey m\npattern /^(a|aa)+$/\n</regexp>\n</filter>\n<match **>\n@type direct\n@id main\n</match>"
    kit = await Kit(text).start()
    await kit.emit("t", {"m": "aa"}, {"m": "a" * 40 + "!"}, {"m": "aaa"})
    assert [record["m"] for _, _, record in kit.of(Direct).events] == ["aa", "aaa"]
    assert kit.pipeline.context.desk.events == 1
    await kit.stop()
