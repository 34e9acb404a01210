"""What `--help` shows beside flags: the commands by their purpose, and examples of each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PURPOSES: Final[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "run it",
        (
            ("run", "run configurations until told to stop"),
            ("check", "tell everything that is wrong with configurations"),
            ("test", "unit tests of a pipeline, in virtual time"),
        ),
    ),
    (
        "look inside while it runs",
        (
            ("top", "a live table: workers, components, pools of connections"),
            ("tap", "live events at any component"),
            ("stats", "all figures; for Prometheus too"),
        ),
    ),
    (
        "what is on the disk",
        (
            ("buffers", "chunks: list, show, export to Fluentd's files"),
            ("dlq", "dead letters: list, show, deliver once more, remove"),
            ("binlog", "events in chunk files"),
        ),
    ),
    (
        "helpers",
        (
            ("plugins", "what a fluent.conf may use, and its parameters"),
            ("cat", "records from standard input to a forward source"),
            ("ca", "certificates for the forward plugins: a private CA, servers, clients"),
            ("version", "show versions"),
        ),
    ),
)
"""Every command once."""

OVERVIEW: Final = """\
examples:
  headrace run fluent.conf                  a pipeline, in the foreground
  headrace run nginx.conf fluent.conf       a gateway too, in one process; access_log pipeline:TAG joins them
  headrace check nginx.conf --json          everything that is wrong, for a program
  headrace tap '*' --limit 10               the next ten events, wherever they are
  headrace plugins output:http              the parameters of a plugin

headrace COMMAND --help shows flags and examples of a command. Pages: docs/README.md.
Scripts that start the originals need no change: headrace-nginx, headrace-fluentd, headrace-resty.
"""

_EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "run": (
        ("run fluent.conf", "a pipeline, in the foreground"),
        ("run nginx.conf --workers 4 -p /srv/gateway", "a gateway with four workers"),
        ("run nginx.conf fluent.conf", "both in one process"),
        ("run fluent.conf --daemon --pid-file /run/h.pid --log /var/log/h.log", "in the background"),
        ("run fluent.conf --metrics 24231", "with http://127.0.0.1:24231/metrics"),
    ),
    "check": (
        ("check fluent.conf", "a line for each finding, with file:line; 1 when it would not start"),
        ("check nginx.conf fluent.conf --json", "both, for a program"),
    ),
    "stats": (
        ("stats", "the figures of every headrace that runs"),
        ("stats --watch", "every second, with what changed"),
        ("stats 4711 --json", "everything of the master 4711"),
        ("stats --prometheus > /var/lib/node_exporter/headrace.prom", "for a textfile collector"),
    ),
    "plugins": (
        ("plugins", "all names, by kind"),
        ("plugins output:http", "the parameters of one"),
        ("plugins filter:mine --plugin ./plugins", "one of your own"),
    ),
    "ca": (
        ("ca /etc/headrace/ca", "a private CA (its passphrase in $HEADRACE_CA_PASSPHRASE)"),
        ("ca /etc/headrace/ca --server logs.example.com", "and a certificate for a receiver"),
        ("ca /etc/headrace/ca - --client web1 < passphrase", "and one for a sender; the passphrase from a file"),
    ),
    "cat": (
        ("cat debug.test < records.json", "a JSON record a line, under the tag debug.test"),
        ("cat -h logs.example.com -p 24224 --none app.log < app.log", "lines of text"),
    ),
    "buffers": (
        ("buffers ls fluent.conf", "the chunks of all outputs"),
        ("buffers show fluent.conf 60a2", "one with its events; the id may be cut short"),
        ("buffers export fluent.conf", "into the files that Fluentd resumes (headrace being stopped)"),
    ),
    "dlq": (
        ("dlq ls fluent.conf", "what was given up, and why"),
        ("dlq show fluent.conf 60a2", "with its events"),
        ("dlq replay fluent.conf 60a2", "deliver it once more"),
        ("dlq purge fluent.conf --older-than 30d", "remove old ones"),
    ),
    "binlog": (
        ("binlog head -n 3 buffer.q5f0c.log", "the first events of a chunk file"),
        ("binlog cat --format ltsv buffer.*.log", "all of them, as ltsv"),
        ("binlog formats", "the formats there are"),
    ),
    "version": (("version", "of headrace, and whose behaviour it has"),),
}


def summaries() -> dict[str, str]:
    """What each command is for, in a line."""
    return {name: text for _purpose, rows in PURPOSES for name, text in rows}


def overview() -> str:
    """The commands by purpose."""
    parts = []
    for purpose, rows in PURPOSES:
        parts.append(f"{purpose}:")
        parts += [f"  {name:<10} {text}" for name, text in rows]
        parts.append("")
    return "\n".join(parts) + "\n" + OVERVIEW


def add_examples(name: str, command: argparse.ArgumentParser) -> None:
    """Put examples below the flags of a command, unless it has its own."""
    if command.epilog is None and name in _EXAMPLES:
        rows = _EXAMPLES[name]
        width = max(len(text) for text, _what in rows)
        lines = [f"  headrace {text:<{width}}   {what}" for text, what in rows]
        command.epilog = "examples:\n" + "\n".join(lines) + "\n"
        command.formatter_class = argparse.RawDescriptionHelpFormatter
