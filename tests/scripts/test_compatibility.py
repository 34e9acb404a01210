"""docs/compatibility.md says what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "compatibility.py"


def test_the_file_is_up_to_date():
    spec = importlib.util.spec_from_file_location("compatibility", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = list(script.document())
    there = script.TARGET.read_text(encoding="utf-8").splitlines()
    assert there == made, "run `make docs`"
    assert any("`content_by_lua_block`" in line for line in made)
    assert any("`ngx.re.match`" in line for line in made)
    assert any(line.startswith("| `http` |") for line in made)
