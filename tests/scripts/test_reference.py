"""docs/reference/ says what the declarations say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from headrace.conf.declare import declared_params
from headrace.plugins import registry

SCRIPT = Path(__file__).parents[2] / "scripts" / "reference.py"


def test_the_files_are_up_to_date():
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.documents()
    there = {path.name: path.read_text(encoding="utf-8") for path in script.TARGET.glob("*.md")}
    assert there == made, "run `make docs`"
    assert "| `flush_thread_count` | integer |" in made["buffer.md"]
    assert "## http" in made["output.md"]


def test_every_parameter_says_what_it_is_for():
    silent = [
        f"{kind}:{name} {item.key}"
        for kind, table in registry.BUILT_INS.items()
        for name in table
        for item in declared_params(registry.lookup(kind, name))
        if not item.doc
    ]
    assert not silent
