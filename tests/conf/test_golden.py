"""Golden files: NAME.conf must become NAME.json, or fail with the text of NAME.error.

Run this file as a program to write what the parsers give now; read the difference before you keep it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trees import plain

from headrace.conf import fluent, nginx
from headrace.errors import ConfError

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = sorted(GOLDEN.glob("fluent/*.conf")) + sorted(GOLDEN.glob("fluent/*.yaml"))
CASES += sorted(GOLDEN.glob("nginx/*.conf"))
ENV = {"HOME_DIR": "/home/x", "EMPTY": "", "TOKEN": 's"t'}


def outcome(case: Path) -> tuple[str, str]:
    """The suffix and the text of what the parser makes of a case."""
    try:
        if case.parent.name == "fluent":
            tree = fluent.load(str(case), env=ENV, hostname="host.example", worker_id="3")
        else:
            tree = nginx.load(case.name, prefix=str(case.parent))
    except ConfError as error:
        return ".error", str(error).replace(f"{case.parent}/", "") + "\n"
    return ".json", json.dumps(plain(tree, lines=True), indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.stem}")
def test_golden(case: Path) -> None:
    suffix, text = outcome(case)
    assert case.with_suffix(suffix).read_text("utf-8") == text


def test_every_result_has_its_case() -> None:
    known = {case.with_suffix("") for case in CASES}
    languages = ("fluent", "nginx")
    results = [path for name in languages for path in (GOLDEN / name).iterdir() if path.suffix in {".json", ".error"}]
    assert {path.with_suffix("") for path in results} == known
    assert len(results) == len(known)


if __name__ == "__main__":
    for path in CASES:
        for old in (path.with_suffix(".json"), path.with_suffix(".error")):
            old.unlink(missing_ok=True)
        suffix, text = outcome(path)
        path.with_suffix(suffix).write_text(text, "utf-8")
