"""--help: every command stands in the overview and has examples; every page of docs/ is in its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.commands import main
from headrace.commands.helping import PURPOSES, summaries

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = sorted(main._COMMANDS)


def test_the_overview_has_every_command_once():
    assert sorted(summaries()) == COMMANDS
    assert sum(len(rows) for _purpose, rows in PURPOSES) == len(COMMANDS)
    text = main.parser().format_help()
    for purpose, rows in PURPOSES:
        assert f"\n{purpose}:\n" in text
        for name, what in rows:
            assert f"  {name:<10} {what}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert f"headrace {name}" in text.partition("examples:")[2]
    assert summaries()[name].split()[0].lower() in text.lower()


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text()
    for page in [*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")]:
        name = str(page.relative_to(DOCS))
        assert name == "README.md" or f"]({name})" in index, name
