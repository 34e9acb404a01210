"""Keep what the originals' own suites gave, for docs/compatibility.md.

    python scripts/suites.py SUITE RESULT.json [RESULT.json ...]

SUITE: lua (lua-nginx-module's tests), core (nginx's own tests) or libraries (those of lua-resty-*). A result is what
the suite's runner writes: {"files": {NAME: {"passed": N, "failed": N, "nginx": N}}}, nginx: the checks that nginx
passes. The later of two results for a file counts. The figures are kept in docs/suites/SUITE.json; why a file is not
full stands in docs/suites/reasons.toml, by suite and file. Then docs/compatibility.md is made anew.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "docs" / "suites"
SUITES: Final = {
    "core": "nginx's own tests",
    "lua": "The tests of lua-nginx-module",
    "libraries": "The tests of unmodified libraries",
}


def read(path: Path) -> dict[str, dict[str, int]]:
    """Figures by file; none where there is no such result."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, int]] = json.loads(path.read_text(encoding="utf-8"))["files"]
    return found


def keep(suite: str, results: list[Path]) -> None:
    """Merge results into the kept figures."""
    target = FOLDER / f"{suite}.json"
    files = read(target)
    for result in results:
        files |= read(result)
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f' "{name}": {json.dumps(files[name])}' for name in sorted(files))
    target.write_text('{"files": {\n' + lines + "\n}}\n", encoding="utf-8")


def document() -> Iterator[str]:
    """The lines of docs/compatibility.md."""
    reasons: dict[str, dict[str, str]] = tomllib.loads((FOLDER / "reasons.toml").read_text(encoding="utf-8"))
    yield ""
    yield "## The originals' own suites"
    yield ""
    yield "Checks passed here, of those that nginx itself passes on the same machine. Made by `scripts/suites.py`."
    for suite, title in SUITES.items():
        files = read(FOLDER / f"{suite}.json")
        if not files:
            continue
        total = sum(row["nginx"] for row in files.values())
        reached = sum(_reached(row) for row in files.values())
        yield ""
        yield f"### {title}: {reached:,} of {total:,} ({100 * reached / total:.1f}%)"
        yield ""
        short = {name: row for name, row in sorted(files.items()) if _reached(row) < row["nginx"]}
        yield f"{len(files) - len(short)} of {len(files)} files are full." + (" The others:" if short else "")
        if not short:
            continue
        yield ""
        yield "| file | passed | of | what is missing |"
        yield "|---|---|---|---|"
        for name, row in short.items():
            yield f"| {name} | {_reached(row)} | {row['nginx']} | {reasons.get(suite, {}).get(name, '')} |"


def _reached(row: dict[str, Any]) -> int:
    return min(int(row["passed"]), int(row["nginx"]))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    args = parser.parse_args()
    keep(args.suite, args.results)
    import compatibility  # noqa: PLC0415 - it imports this module

    compatibility.main()


if __name__ == "__main__":
    main()
