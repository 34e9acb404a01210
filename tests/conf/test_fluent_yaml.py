"""YAML configurations: what golden files do not show."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.conf import fluent
from headrace.conf.files import Files
from headrace.conf.fluent_ruby import Surroundings
from headrace.conf.fluent_yaml import parse
from headrace.conf.params import Problems
from headrace.errors import ConfError
from headrace.testing.plugin import need_fluentd

AROUND = Surroundings({}, "host", "0")


def read(text, files=None, problems=None):
    return parse(text, "/x/test.yaml", AROUND, files or Files(), problems or Problems())


def test_aliases_that_grow_without_end_are_refused():
    text = "config:\n  - source:\n      a0: &a0 {x: 1}\n"
    for number in range(1, 30):
        names = ", ".join([f"k{index}: *a{number - 1}" for index in range(10)])
        text += f"      a{number}: &a{number} {{{names}}}\n"
    with pytest.raises(ConfError, match=r"more than 100000|nested deeper"):
        read(text)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{a: " * 10_000, "a: " + "[" * 500 + "]" * 500, "config: [" + "[" * 90 + "]" * 91]
)
def test_depth_is_bounded(text):
    with pytest.raises(ConfError):
        read(text)


def test_unknown_keys_and_missing_files_are_told():
    problems = Problems()
    read("config:\n  - !include nowhere.yaml\nother: 1\n", problems=problems)
    told = [str(error) for error in problems.errors + problems.warnings]
    assert any('unknown key "other" at the top in /x/test.yaml:3' in line for line in told)
    assert any("!include nowhere.yaml: no such file in /x/test.yaml:2" in line for line in told)


def test_only_files_can_be_included():
    with pytest.raises(ConfError, match="only files can be included"):
        read("config:\n  - !include http://example.com/x.yaml\n")


def test_includes_in_order_and_remembered(tmp_path):
    for name in "ba":
        (tmp_path / f"{name}.yml").write_text(f"- source:\n    $type: {name}\n")
    (tmp_path / "main.conf").write_text("config:\n  - !include '*.yml'\n")
    files = Files()
    tree = fluent.load(str(tmp_path / "main.conf"), files=files, yaml=True)
    assert [section.block[0].args for section in tree] == [("a",), ("b",)]
    assert tree[1].place.file == str(tmp_path / "b.yml")
    assert len(files.read) == 3


@given(st.text(alphabet="ab:-[]{}&*!<>|'\"#$\n \t~,?%@`0.", max_size=60))
def test_whatever_comes(text):
    for wrapped in (text, "config:\n  - source:\n      x: " + text):
        try:
            read(wrapped)
        except ConfError as error:
            assert error.place is not None  # noqa: PT017 - either outcome is right


YAML = """
config:
  - source:
      $type: sample
      $id: smp
      tag: a.b
      sample: '{"message": "from yaml"}'
  - match:
      $tag: a.**
      $type: stdout
"""


def test_a_run_of_a_yaml_file(prefix, headrace):
    for name, flags in (("fluent.yaml", ()), ("fluent.any", ("--config-file-type", "yaml"))):
        (prefix / name).write_text(YAML)
        process = headrace("fluentd", "-c", prefix / name, *flags)
        process.wait_for('a.b: {"message":"from yaml"}')
        assert process.stop() == 0
    done = headrace.run("headrace", "check", prefix / "fluent.yaml")
    assert done.returncode == 0


@pytest.mark.fluentd
def test_fluentd_reads_the_same(tmp_path):
    command = need_fluentd()
    file = tmp_path / "fluent.yaml"
    file.write_text(YAML)
    done = subprocess.run(
        [*command, "--dry-run", "-c", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    shown = done.stdout.partition("<ROOT>\n")[2].partition("</ROOT>")[0]
    (theirs,) = [section for section in fluent.parse(shown, "dump") if section.name == "match"]
    (ours,) = [section for section in read(YAML) if section.name == "match"]
    assert theirs.args == ours.args
    assert [(child.name, child.args) for child in theirs.block] == [(child.name, child.args) for child in ours.block]
