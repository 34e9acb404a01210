"""Write docs/reference/: the manual of every plugin, from the declarations in the code, a file for each kind.

    python scripts/reference.py

A test compares the files with what this makes (tests/scripts/test_reference.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.conf.manual import manual
from headrace.plugins import registry

TARGET = Path(__file__).parents[1] / "docs" / "reference"
TITLES = {
    "input": "Sources: `<source>`",
    "output": "Outputs: `<match>`",
    "filter": "Filters: `<filter>`",
    "parser": "Parsers: `<parse>`",
    "formatter": "Formatters: `<format>`",
    "buffer": "Buffers: `<buffer>`",
    "sd": "Service discovery: `<service_discovery>`",
    "storage": "Storages: `<storage>`",
}


def main() -> None:
    """Write the files, and remove those of kinds that are gone."""
    TARGET.mkdir(exist_ok=True)
    made = documents()
    for left in TARGET.glob("*.md"):
        if left.name not in made:
            left.unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")


def documents() -> dict[str, str]:
    """The text of each file by its name."""
    made = {f"{kind}.md": "\n".join(_page(kind)) for kind in registry.BUILT_INS}
    made["README.md"] = "\n".join(_index())
    return made


def _index() -> Iterator[str]:
    yield "# Manual of the plugins"
    yield ""
    yield "Made from the code by `make docs`. `headrace plugins KIND:NAME` prints one on the terminal."
    yield ""
    for kind, table in registry.BUILT_INS.items():
        links = ", ".join(f"[{name}]({kind}.md#{_anchor(name)})" for name in sorted(table))
        yield f"- {TITLES[kind]} {links}"
    yield ""


def _page(kind: str) -> Iterator[str]:
    yield f"# {TITLES[kind]}"
    yield ""
    yield "Made from the code by `make docs`."
    for name in sorted(registry.BUILT_INS[kind]):
        yield ""
        yield manual(registry.lookup(kind, name), name, level=2)
    yield ""


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


if __name__ == "__main__":
    main()
