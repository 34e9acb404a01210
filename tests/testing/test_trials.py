"""headrace test: the file format, what runs on the stage, and what a failure says."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from headrace.commands.main import main
from headrace.conf.fluent import parse as parse_conf
from headrace.errors import ConfError, Error
from headrace.plugins.registry import lookup
from headrace.testing.trials.cases import parse
from headrace.testing.trials.compare import compare, fits
from headrace.testing.trials.stage import Stage

EXAMPLES = Path(__file__).parents[2] / "examples"
CONF = """
<source>
  @type http
  @id web
  @label @APP
</source>
<label @APP>
  <filter **>
    @type record_transformer
    enable_ruby true
    <record>
      twice ${record["n"] * 2}
    </record>
  </filter>
  <match wide.**>
    @type copy
    <store>
      @type http
      @id one
      endpoint http://127.0.0.1:1/
    </store>
    <store>
      @type relabel
      @label @END
    </store>
  </match>
  <match kept.**>
    @type buffer
    @label @END
    <buffer tag>
      path /nowhere/at/all
    </buffer>
  </match>
</label>
<label @END>
  <match **>
    @type file
    @id files
    path /nowhere/${tag}
    <buffer tag, time>
      timekey 1h
    </buffer>
  </match>
</label>
<filter lines>
  @type concat
  key text
  n_lines 3
  flush_interval 5s
  timeout_label @END
</filter>
<match lines>
  @type relabel
  @label @END
</match>
"""


def failures(text: str, conf: str = CONF) -> list[str]:
    (case,) = parse(text, "t.yaml")
    tree = parse_conf(conf, "test.conf", env={}, hostname="host", worker_id="0")

    async def play():
        return await Stage(tree, lookup, case.at).play(case.inputs)

    return [f"{one.place.line}: {one.message}" for one in compare(case, asyncio.run(play()))]


def one(inputs: str, expect: str) -> str:
    return f"tests:\n- name: it\n  inputs:\n{inputs}\n  expect:\n{expect}\n"


WIDE = '  - {source: web, tag: wide.a, time: "2026-05-06T07:08:09.000000001Z", records: [{n: 1}, {n: 2}]}'


def test_outputs_and_labels_get_what_they_would(monkeypatch):
    def refuse(*_args):
        raise AssertionError("a connection is made")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    expect = """
  - output: one
    events:
    - {tag: wide.a, time: "2026-05-06T07:08:09.000000001Z", record: {n: 1, twice: 2}}
    - {tag: !re "^wide", record: {n: 2, twice: 4}}
  - {output: http, count: 2}
  - label: "@END"
    unordered: true
    partial: true
    records: [{n: 2}, {n: 1}]
  - {output: files, records: [{n: 1, twice: !any }, {n: 2, twice: !any }]}
  - {unmatched: 0}
  - {errors: 0}"""
    found = failures(one(WIDE, expect))
    assert found == []
    assert not Path("/nowhere").exists()


def test_a_stage_with_a_buffer_passes_on_at_once():
    assert failures(one("  - {to: '@APP', tag: kept.x, records: [{n: 3}]}", "  - {output: files, count: 1}")) == []


def test_time_passes_and_what_is_held_back_comes_out_at_the_end():
    held = "  - {tag: lines, records: [{text: a}, {text: b}]}"
    assert failures(one(held, '  - {output: files, records: [{text: "a\\nb"}]}')) == []
    early = f"{held}\n  - wait: 6s\n  - {{tag: lines, records: [{{text: c}}]}}"
    assert failures(one(early, '  - {output: files, records: [{text: "a\\nb"}, {text: c}]}')) == []


def test_error_events_must_be_expected():
    broken = "  - {to: '@APP', tag: wide.a, records: [{m: 1}]}"
    (found,) = failures(one(broken, "  - {output: one, count: 0}"))
    assert "1 error events that nobody expects" in found
    assert failures(one(broken, "  - errors: [{tag: wide.a, record: {m: 1}}]")) == []
    (found,) = failures(one(broken, "  - errors: [{error: not this}]"))
    assert found == "6: the error of an error event is another"
    assert failures(one(broken, "  - errors: 2")) == ["6: 1 error events, not 2"]


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ("  - {output: one, count: 3}", "output one got 2 events, not 3"),
        ("  - {output: one, records: [{n: 1, twice: 2}]}", "output one got 2 events, 1 are expected"),
        ("  - {output: one, partial: true, records: [{n: 1}, {n: 1}]}", "event 2 of 2 is another"),
        ("  - {output: one, partial: true, unordered: true, records: [{n: 2}, {n: 3}]}", "event 2 of 2 did not come"),
        ("  - {output: ones, count: 0}", 'there is no output "ones"; did you mean "one"?'),
        ("  - {label: '@AP', count: 0}", 'there is no label "@AP"'),
        ("  - {filter: record_transformer, dropped: 1}", "dropped 0 events, not 1"),
        ("  - {unmatched: 1}", "0 events met no <match>, not 1"),
    ],
)
def test_what_does_not_hold_is_said(expect, says):
    (found,) = failures(one(WIDE, expect))
    assert says in found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("test: []", 'has no "test"'),
        ("tests:\n- name: x\n  inputs: []\n", "needs expect"),
        ("tests:\n- name: x\n  inputs: []\n  expect: []\n", "tests nothing"),
        (one("  - {tag: a}", "  - {unmatched: 0}"), "needs records: or events:"),
        (one("  - {wait: soon}", "  - {unmatched: 0}"), "no time span"),
        (one("  - {tag: a, time: soon, records: [{}]}", "  - {unmatched: 0}"), '"soon" is no time'),
        (one(WIDE, "  - {output: a, label: b}"), "has one of"),
        (one(WIDE, "  - {output: a}"), "what is expected of output a?"),
        (one(WIDE, "  - {output: a, recods: []}"), 'has no "recods"'),
        ("tests: [", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(text, says):
    with pytest.raises(ConfError) as caught:
        parse(text, "t.yaml")
    assert says in str(caught.value)
    assert caught.value.place is not None


def test_inputs_need_a_way_that_exists():
    with pytest.raises(Error, match="there is no source"):
        failures(one("  - {source: nobody, tag: a, records: [{}]}", "  - {unmatched: 0}"))
    with pytest.raises(Error, match='there is no label "@NO"'):
        failures(one("  - {to: '@NO', tag: a, records: [{}]}", "  - {unmatched: 0}"))


def test_values_have_types():
    assert fits(1, 1, partial=False)
    for wanted, got in [(1, "1"), (1, True), (1, 1.0), (True, 1), ({"a": 1}, {"a": 1, "b": 2}), ([1], [1, 2])]:
        assert not fits(wanted, got, partial=False)
    assert fits({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, partial=True)


def test_yes_is_a_text_and_so_is_a_date():
    (case,) = parse(one("  - {tag: a, records: [{a: yes, b: 2026-01-01, c: true}]}", "  - {unmatched: 1}"), "t.yaml")
    assert case.inputs[0].events[0][1] == {"a": "yes", "b": "2026-01-01", "c": True}


def test_the_example_passes(capsys):
    assert main(["test", str(EXAMPLES / "tested" / "fluent.conf")]) == 0
    assert "3 passed, 0 failed" in capsys.readouterr().out


def test_the_command_fails_with_a_difference(tmp_path, capsys):
    conf = tmp_path / "fluent.conf"
    conf.write_text("<match **>\n@type null\n@id out\n</match>\n")
    (tmp_path / "fluent.test.yaml").write_text(
        one("  - {tag: a, records: [{n: 1}]}", "  - {output: out, records: [{n: 2}]}")
    )
    assert main(["test", str(conf)]) == 1
    shown = capsys.readouterr().out
    assert f"{tmp_path}/fluent.test.yaml:6: output out: event 1 of 1 is another" in shown
    assert '-   "n": 2' in shown
    assert '+   "n": 1' in shown
    assert main(["test", str(conf), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["passed"], row["failures"][0]["line"]) == (False, 6)
    assert main(["test", str(conf), "-k", "nothing"]) == 1


def test_a_configuration_that_is_wrong_is_said_with_its_line(tmp_path, capsys):
    conf = tmp_path / "fluent.conf"
    conf.write_text("<match **>\n@type null\nwrong 1\n</match>\n")
    (tmp_path / "fluent.test.yaml").write_text(one("  - {tag: a, records: [{n: 1}]}", "  - {unmatched: 0}"))
    assert main(["test", str(conf)]) == 1
    assert "fluent.conf:3" in capsys.readouterr().err
