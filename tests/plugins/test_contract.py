"""What every plugin of the table must hold to, whoever wrote it."""

import re

import pytest

from headrace.conf.params import declared_params, declared_sections
from headrace.pipeline import plugin as bases
from headrace.pipeline.context import BASES
from headrace.plugins import registry

ALL = sorted({registry.lookup(kind, name) for kind in registry.BUILT_INS for name in registry.BUILT_INS[kind]}, key=str)
SECRET = re.compile(r"passw|passphrase|secret|token")
CHILDREN = {"input": bases.Source, "output": bases.Output, "filter": bases.Filter}
CHILDREN |= {"parser": bases.Parser, "formatter": bases.Formatter}
CHILDREN |= {kind: BASES[kind] for kind in ("storage", "sd")}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_plugin_is_of_the_kind_it_is_listed_under(kind):
    for name in registry.BUILT_INS[kind]:
        cls = registry.lookup(kind, name)
        assert issubclass(cls, CHILDREN[kind]), name
        assert cls.kind == kind


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_it_says_what_it_is_and_what_each_parameter_means(cls):
    assert cls.__doc__
    for item in (*declared_params(cls), *declared_sections(cls)):
        assert item.doc, item.key


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_secrets_are_declared_as_such(cls):
    for item in declared_params(cls):
        assert item.secret or not SECRET.search(item.key), item.key


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_making_one_has_no_side_effects_and_needs_nothing(cls):
    one, other = cls(), cls()
    assert vars(one) == vars(other) == {}
