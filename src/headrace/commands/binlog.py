"""`headrace binlog head | cat | formats`: events in chunk files, as fluent-binlog-reader shows them.

A FILE may be a chunk of Fluentd's file buffers, a dump of secondary_file, a dead letter (each also compressed), a
segment of our journal, or the folder of a buffer. Events of a chunk whose tag is known have that tag, others the path.
https://docs.fluentd.org/deployment/command-line-option#fluent-binlog-reader
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from headrace.errors import Error
from headrace.pipeline import codec, inventory
from headrace.pipeline.event import decoded
from headrace.pipeline.files import Files
from headrace.pipeline.fluentfiles import META, SINGLE_PREFIX, SINGLE_SUFFIX, Location, read_meta

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from headrace.pipeline.plugin import Formatter

_HEAD: Final = 5


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    commands = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    head = commands.add_parser("head", help="the first events of files")
    cat = commands.add_parser("cat", help="all events of files")
    formats = commands.add_parser("formats", help="the formats there are")
    head.add_argument("-n", type=_positive, default=_HEAD, metavar="COUNT", help=f"events to show ({_HEAD})")
    cat.add_argument("-n", type=_positive, default=None, metavar="COUNT", help="events to show (all)")
    for one in (head, cat):
        one.add_argument("files", nargs="+", metavar="FILE", help="chunk files, or the folder of a buffer")
        one.add_argument("-f", "--format", default="out_file", metavar="TYPE", help="a formatter (out_file)")
        one.add_argument(
            "-e", action="append", default=[], dest="parameters", metavar="KEY=VALUE", help="its parameters"
        )
    for one in (head, cat, formats):
        one.add_argument(
            "-p", "--plugin", action="append", default=[], dest="plugins", metavar="DIR", help="plugin folder"
        )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def run(flags: argparse.Namespace) -> int:
    """Run one action; the exit status."""
    if flags.action == "formats":
        return _formats(flags)
    formatter = _formatter(flags)
    left = flags.n
    out = sys.stdout.buffer
    for path in flags.files:
        for tag, data in _chunks(path):
            try:
                events = decoded(data)
            except ValueError as error:
                raise Error(f"{path} does not hold the msgpack stream of events: {error}") from error
            if data and not events:
                raise Error(f"{path} does not hold the msgpack stream of events")
            for time, record in events:
                if left == 0:
                    return 0
                out.write(formatter.format(tag, time, record))
                left = left - 1 if left is not None else None
    out.flush()
    return 0


def _formats(flags: argparse.Namespace) -> int:
    from headrace.plugins.folder import Folders  # noqa: PLC0415 - the other actions start at once
    from headrace.plugins.registry import names  # noqa: PLC0415 - likewise

    own = Folders(flags.plugins)
    known = {*names("formatter"), *own.names("formatter")}
    sys.stdout.write("".join(f"{name}\n" for name in sorted(known)))
    return 0


def _formatter(flags: argparse.Namespace) -> Formatter:
    from headrace.conf.params import Problems  # noqa: PLC0415 - `formats` does without
    from headrace.conf.tree import Directive  # noqa: PLC0415 - likewise
    from headrace.pipeline.context import Context  # noqa: PLC0415 - likewise
    from headrace.plugins.folder import Folders  # noqa: PLC0415 - likewise

    problems = Problems()
    lines = []
    for text in flags.parameters:
        key, equal, value = text.partition("=")
        if not equal:
            raise Error(f"-e {text}: write KEY=VALUE")
        lines.append(Directive(key, (value,), "-e", 1, values=(value,)))
    section = Directive("format", (), "-f", 1, block=tuple(lines))
    made: Formatter | None = Context(Folders(flags.plugins).lookup, problems).make(
        "formatter", section, default_type=flags.format
    )
    problems.raise_first()
    assert made is not None
    return made


def _chunks(path: str) -> Iterator[tuple[str, bytes]]:
    """(tag, content) of each chunk in a file or folder. Raises Error."""
    files = Files()
    try:
        if os.path.isdir(path):
            yield from _folder(path, files)
        elif path.endswith(".journal"):
            own = os.path.realpath(path)
            for one in inventory.peek(os.path.dirname(os.path.dirname(own)), files):
                parts = tuple(part for part in one.parts if part[0] == own)
                if parts:
                    yield one.meta.tag or path, inventory.content(one._replace(parts=parts), files)
        else:
            data = files.content(path)
            tag = path
            if os.path.exists(path + META):
                tag = read_meta(files.content(path + META)).meta.tag or path
            yield tag, codec.decompress(codec.sniffed(data), data)
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Error(f"{path} is damaged: {error}") from error


def _folder(path: str, files: Files) -> Iterator[tuple[str, bytes]]:
    own = os.path.realpath(path)
    if os.path.basename(own).startswith("journal."):
        own = os.path.dirname(own)
    found = inventory.peek(own, files)
    for place in (Location(own, "buffer", ".log"), Location(own, SINGLE_PREFIX, SINGLE_SUFFIX, single=True)):
        found += inventory.peek_files(place, files)
    if not found:
        sys.stderr.write(f"headrace: {path} is the folder of no buffer, or holds no chunks\n")
    for one in found:
        yield one.meta.tag or path, inventory.content(one, files)
