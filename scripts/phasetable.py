"""The part of docs/compatibility.md that says where the Lua API may be called, from tests/lua/phases.json."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

DATA = Path(__file__).parents[1] / "tests" / "lua" / "phases.json"


def document() -> Iterator[str]:
    """A table: the phases, and what is refused there."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    where: dict[str, list[str]] = {name: [] for name in data["calls"]}
    for phase, refused in data["refused"].items():
        for names in refused.values():
            for name in names:
                where[name].append(phase)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, phases in where.items():
        groups[tuple(phases)].append(name)
    yield ""
    yield "### Where it may be called"
    yield ""
    yield from textwrap.wrap(
        f"{len(where)} calls in 17 phases, as nginx with its Lua module answers them: "
        "tests/lua/phases.json has the words of each refusal, and a test makes each call here and there. What is "
        "meant to differ is in tests/lua/phases_rig.py: coroutines work everywhere, and subrequests in server_rewrite.",
        118,
    )
    yield ""
    yield "| refused in | calls |"
    yield "|---|---|"
    for phases, names in sorted(groups.items(), key=lambda item: (len(item[0]), item[0])):
        yield f"| {', '.join(phases) or 'no phase'} | {', '.join(f'`{name}`' for name in sorted(names))} |"
