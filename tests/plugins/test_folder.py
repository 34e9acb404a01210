"""Plugins that are files of a folder."""

from __future__ import annotations

import pytest

from headrace.conf.params import Problems
from headrace.errors import ConfError
from headrace.pipeline.plugin import Output
from headrace.plugins.folder import Folders
from headrace.plugins.out_null import NullOutput

PIGEON = """
from headrace.pipeline.plugin import Filter, Output

class PigeonOutput(Output):
    speed = 1
    def process(self, tag, batch):
        pass
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out_pigeon.py").write_text(PIGEON)
    return tmp_path


def refusal(folder, kind="output", name="pigeon"):
    with pytest.raises(ConfError) as caught:
        Folders([str(folder)]).lookup(kind, name)
    return caught.value


def test_the_class_of_the_file(folder):
    folders = Folders([str(folder)])
    found = folders.lookup("output", "pigeon")
    assert issubclass(found, Output)
    assert found.__name__ == "PigeonOutput"
    assert folders.lookup("output", "pigeon") is found
    assert "pigeon" in folders.names("output")
    assert "pigeon" not in folders.names("filter")
    assert folders.lookup("output", "null") is NullOutput


def test_a_package_and_what_it_imports_from_its_folder(folder):
    package = folder / "filter_two"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import TwoFilter\n")
    (package / "inner.py").write_text(
        "from folder_helper import Base\nclass TwoFilter(Base):\n    pass\n",
    )
    (folder / "folder_helper.py").write_text(
        "from headrace.pipeline.plugin import Filter\nclass Base(Filter):\n    def filter(self, *_):\n        pass\n"
    )
    assert Folders([str(folder)]).lookup("filter", "two").__name__ == "TwoFilter"


@pytest.mark.parametrize(
    ("file", "base", "kind", "method"),
    [
        ("filter_x.py", "Filter", "filter", "filter"),
        ("out_x.py", "Output", "output", "write"),
        ("parser_x.py", "Parser", "parser", "parse"),
        ("formatter_x.py", "Formatter", "formatter", "format"),
    ],
)
def test_a_class_without_the_method_that_does_the_work(folder, file, base, kind, method):
    (folder / file).write_text(f"from headrace.pipeline.plugin import {base}\nclass X({base}):\n    pass\n")
    assert refusal(folder, kind, "x").message.endswith(f'X has no method "{method}"')


def test_a_folder_goes_before_the_built_ins_and_an_earlier_one_before_a_later(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (folder / "out_null.py").write_text(PIGEON)
    (other / "out_null.py").write_text(PIGEON.replace("Pigeon", "Other"))
    assert Folders([str(folder), str(other)]).lookup("output", "null").__name__ == "PigeonOutput"
    assert Folders([str(other)], optional=[str(folder)]).lookup("output", "null").__name__ == "OtherOutput"


def test_a_later_lookup_reads_the_file_anew(folder):
    Folders([str(folder)]).lookup("output", "pigeon")
    (folder / "out_pigeon.py").write_text(PIGEON.replace("speed = 1", "speed = 22"))
    assert vars(Folders([str(folder)]).lookup("output", "pigeon"))["speed"] == 22


def test_a_file_without_a_plugin_of_its_kind(folder):
    (folder / "filter_pigeon.py").write_text(PIGEON)
    error = refusal(folder, "filter")
    assert error.message == f'{folder}/filter_pigeon.py defines no filter plugin "pigeon"'
    assert "headrace.pipeline.plugin.Filter" in error.hint


def test_several_are_named_and_private_ones_do_not_count(folder):
    path = folder / "out_pigeon.py"
    path.write_text(PIGEON + "class DoveOutput(Output):\n    pass\nclass _Base(Output):\n    pass\n")
    error = refusal(folder)
    assert error.message == f"{path} defines several output plugins: DoveOutput, PigeonOutput"
    path.write_text(PIGEON + "class _Base(Output):\n    pass\n")
    assert Folders([str(folder)]).lookup("output", "pigeon").__name__ == "PigeonOutput"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module_of_anybody\n", ":1: ModuleNotFoundError: No module named 'no_such_module_of_anybody'"),
        ("\n\n1 / 0\n", ":3: ZeroDivisionError: division by zero"),
        ("class (\n", "SyntaxError: "),
    ],
)
def test_a_file_that_cannot_be_loaded(folder, text, said):
    (folder / "out_pigeon.py").write_text(text)
    error = refusal(folder)
    assert f'output plugin "pigeon" cannot be loaded from {folder}/out_pigeon.py' in error.message
    assert said in error.message


def test_ruby_is_told_of_and_refused_where_it_is_needed(folder):
    (folder / "out_crow.rb").write_text("")
    problems = Problems()
    folders = Folders([str(folder)])
    folders.report(problems)
    (warning,) = problems.warnings
    assert warning.message == f"plugins of {folder} are not loaded, for they are Ruby: out_crow.rb"
    assert "docs/plugins.md" in warning.hint
    assert folders.lookup("output", "pigeon")
    assert folders.lookup("output", "null") is NullOutput
    error = refusal(folder, name="crow")
    assert error.message == f'output plugin "crow" is Ruby: {folder}/out_crow.rb'
    assert "out_crow.py" in error.hint


def test_a_missing_folder_is_a_warning_unless_it_is_the_default(tmp_path):
    problems = Problems()
    Folders([str(tmp_path / "none")], optional=[str(tmp_path / "neither")]).report(problems)
    assert [warning.message for warning in problems.warnings] == [f"the plugin folder {tmp_path}/none does not exist"]


def test_a_near_name_may_be_that_of_a_file(folder):
    error = refusal(folder, name="pigoen")
    assert (error.message, error.hint) == ('unknown output plugin "pigoen"', 'did you mean "pigeon"?')
    assert "unknown" in refusal(folder, name="../pigeon").message
    assert refusal(folder, name="htp").hint == 'did you mean "http"?'
