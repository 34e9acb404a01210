"""The registry: every built-in of the table loads, unknown names get a hint, entry points add more."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headrace.errors import ConfError
from headrace.pipeline.plugin import Plugin
from headrace.plugins import registry


@pytest.fixture
def installed(monkeypatch):
    points = {}
    monkeypatch.setattr(registry, "_installed", lambda: points)
    return points


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in registry.BUILT_INS for name in registry.BUILT_INS[kind]]
)
def test_every_built_in_loads(kind, name):
    assert issubclass(registry.lookup(kind, name), Plugin)


def test_a_near_name_is_the_hint():
    with pytest.raises(ConfError, match='unknown output plugin "htp"') as caught:
        registry.lookup("output", "htp")
    assert caught.value.hint == 'did you mean "http"?'


def test_a_name_of_another_kind_says_so():
    with pytest.raises(ConfError) as caught:
        registry.lookup("input", "relabel")
    assert "kind output" in caught.value.hint
    with pytest.raises(ConfError) as caught:
        registry.lookup("output", "record_transformer")  # although there is an output record_modifier
    assert "kind filter" in caught.value.hint


def test_an_entry_point_adds_a_plugin(installed):
    installed["out_pigeon"] = EntryPoint("out_pigeon", f"{__name__}:Pigeon", registry.GROUP)
    assert registry.lookup("output", "pigeon") is Pigeon
    assert "pigeon" in registry.names("output")
    assert "pigeon" not in registry.names("input")


def test_a_built_in_wins_over_an_entry_point(installed):
    installed["out_http"] = EntryPoint("out_http", f"{__name__}:Pigeon", registry.GROUP)
    assert registry.lookup("output", "http") is not Pigeon


def test_an_entry_point_that_is_no_plugin_is_refused(installed):
    installed["out_rock"] = EntryPoint("out_rock", "collections:OrderedDict", registry.GROUP)
    with pytest.raises(ConfError, match="not a subclass"):
        registry.lookup("output", "rock")


def test_an_entry_point_that_cannot_be_imported_names_the_package(installed):
    installed["out_gone"] = EntryPoint("out_gone", "no_such_module_here:Gone", registry.GROUP)
    with pytest.raises(ConfError, match="no_such_module_here"):
        registry.lookup("output", "gone")


class Pigeon(Plugin):
    """A plugin of somebody else."""


def test_every_module_of_a_plugin_is_in_the_table():
    folder = Path(registry.__file__).parent
    for kind, prefix in registry.PREFIXES.items():
        for path in folder.glob(f"{prefix}_*"):
            name = path.stem.removeprefix(f"{prefix}_")
            assert name in registry.BUILT_INS[kind], path


def test_a_plugin_of_fluentd_that_is_not_built_is_no_typing_error():
    for kind, name in (("input", "kafka"), ("output", "webhdfs"), ("filter", "geoip"), ("parser", "grok")):
        with pytest.raises(ConfError) as caught:
            registry.lookup(kind, name)
        assert caught.value.hint == "Fluentd has it; headrace has not built it yet"


@pytest.mark.parametrize("name", ["null", "stdout"])
def test_the_buffered_outputs_of_old_have_a_hint_that_says_what_to_write(name):
    with pytest.raises(ConfError, match=f'unknown output plugin "buffered_{name}"') as caught:
        registry.lookup("output", f"buffered_{name}")
    assert f"write @type {name} with a <buffer> section" in caught.value.hint
