"""`headrace dlq ls | show | replay | purge`: dead letters, chunks that were given up and records that were refused.

    headrace dlq ls fluent.conf
    headrace dlq show fluent.conf 60a2
    headrace dlq replay fluent.conf 60a2            deliver it once more, by the output that gave it up
    headrace dlq purge fluent.conf --older-than 7d

Where the letters are: in root_dir of CONF's <system> (or what its <dead_letter> says), else in a folder of its own in
/tmp/fluent; with --dir in that folder; with neither, those of all pipelines in /tmp/fluent, which chunks that a Fluentd
has put there are shown with too. A replay only moves the letter to
where its output looks every few seconds; nothing is ever delivered again that was not asked for. See docs/buffers.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.commands.buffers import keys_of, pipelines, readable
from headrace.errors import Error
from headrace.pipeline.backup import LETTER, REPLAY, REPLAYED, default_root, note_of, notes_of
from headrace.pipeline.files import Files
from headrace.pipeline.fluentfiles import META, QUEUED, ChunkMeta, Location, read_meta, write_meta
from headrace.pipeline.placeholders import Meta

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID: Final = re.compile(r"([0-9a-f]{2,})\.(log|damaged|pieces)")
_WAITING: Final = re.compile(rf"{REPLAYED}\.q([0-9a-f]+)\.log")
_WORD: Final = re.compile(r"[0-9a-fA-F]{2,32}")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DIR_MODE: Final = 0o755
_MODE: Final = 0o644


class Letter(NamedTuple):
    """One letter. told: its notes, None where there are none (a Fluentd wrote it)."""

    chunk_id: str
    plugin: str
    worker: str
    path: str
    size: int
    written: float
    told: ChunkMeta | None
    waits: bool = False
    """It is to be delivered, as soon as its output runs and looks."""

    @property
    def dead(self) -> dict[str, Any]:
        """Why it is here."""
        found = self.told.more.get("dead") if self.told is not None else None
        return found if isinstance(found, dict) else {}


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    commands = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    helps = {
        "ls": "the letters, the oldest first",
        "show": "letters with their events",
        "replay": "deliver letters once more",
        "purge": "remove letters",
    }
    for action, text in helps.items():
        one = commands.add_parser(action, help=text)
        one.add_argument("words", nargs="*", metavar="CONF, ID", help="the fluent.conf whose letters they are; ids")
        one.add_argument(
            "--dir", metavar="DIR", help=f"the folder with backup/workerN in it; default: all in {default_root()}"
        )
        one.add_argument(
            "--id", action="append", default=[], dest="ids", metavar="ID", help="a letter's id, or its beginning"
        )
        one.add_argument("--of", metavar="PLUGIN", help="those of one plugin (its @id), or of errors@LABEL")
        one.add_argument("--older-than", type=_seconds, metavar="AGE", help="such as 90s, 10m, 12h, 7d")
        one.add_argument("--plugin", action="append", default=[], dest="plugins", metavar="DIR", help="plugin folder")
        if action in {"replay", "purge"}:
            one.add_argument("--all", action="store_true", dest="everything", help="every letter that fits")
        else:
            one.add_argument("--json", action="store_true", help="as JSON")
        if action == "show":
            one.add_argument("-n", type=int, default=None, metavar="N", help="events of each to show (all)")
        if action == "replay":
            one.add_argument("--tag", help="the tag of letters without notes, which a Fluentd wrote")


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:], 0)
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no age (90s, 10m, 12h, 7d)') from None


def run(flags: argparse.Namespace) -> int:
    """Run one action; the exit status."""
    flags.conf = None
    for word in flags.words:
        if _WORD.fullmatch(word) and not os.path.exists(word):
            flags.ids.append(word)
        elif flags.conf is None:
            flags.conf = word
        else:
            raise Error(f'"{word}" is no id of a letter (two hex digits or more), and {flags.conf} is named already')
    if flags.conf is not None and flags.dir is not None:
        raise Error("name a fluent.conf, or a folder with --dir")
    chosen = [one for one in sorted(_letters(flags), key=lambda one: one.written) if _fits(one, flags)]
    for wanted in flags.ids:
        if not any(one.chunk_id.startswith(wanted.lower()) for one in chosen):
            raise Error(f"there is no letter {wanted}")
    if flags.action in {"replay", "purge"} and not (flags.ids or flags.everything or flags.older_than is not None):
        raise Error(f"{flags.action} needs an id, --older-than or --all")
    actions = {"ls": _ls, "show": _show, "replay": _replay, "purge": _purge}
    return actions[flags.action](chosen, flags)


def _fits(one: Letter, flags: argparse.Namespace) -> bool:
    return (
        (not flags.ids or any(one.chunk_id.startswith(wanted.lower()) for wanted in flags.ids))
        and (flags.of is None or flags.of in {one.plugin, one.dead.get("plugin")})
        and (flags.older_than is None or time.time() - one.written >= flags.older_than)
    )


def _letters(flags: argparse.Namespace) -> Iterator[Letter]:
    files = Files()
    if flags.conf is not None:
        roots = [made.context.dead_letters.root for made in pipelines(flags.conf, flags.plugins)]
    else:
        roots = [root for top in _tops(flags.dir, files) for root in _workers(os.path.join(top, "backup"), files)]
    for root in roots:
        for owner in files.listdir(root):
            yield from _in(os.path.join(root, owner), owner, os.path.basename(root), _ID, files)
        for owner in files.listdir(f"{root}.notes"):
            folder = os.path.join(f"{root}.notes", owner, REPLAY)
            yield from _in(folder, owner, os.path.basename(root), _WAITING, files)


def _in(folder: str, owner: str, worker: str, form: re.Pattern[str], files: Files) -> Iterator[Letter]:
    for name in files.listdir(folder) if os.path.isdir(folder) else ():
        match = form.fullmatch(name)
        path = os.path.join(folder, name)
        if match is not None:
            with contextlib.suppress(FileNotFoundError):  # its output has just delivered it
                facts = os.stat(path)
                told = _notes(path, files)
                waits = form is _WAITING
                yield Letter(match.group(1), owner, worker, path, facts.st_size, facts.st_mtime, told, waits)


def _tops(named: str | None, files: Files) -> list[str]:
    """The folders with `backup` in them: the one that is named, else Fluentd's and those of pipelines within it."""
    if named is not None:
        return [named]
    base = default_root()
    inside = (os.path.join(base, name) for name in files.listdir(base) if name != "backup")
    return [base, *(one for one in inside if os.path.isdir(one))]


def _workers(base: str, files: Files) -> list[str]:
    found = (re.fullmatch(r"(worker[0-9]+)(\.notes)?", name) for name in files.listdir(base))
    return sorted({os.path.join(base, match[1]) for match in found if match is not None})


def _notes(path: str, files: Files) -> ChunkMeta | None:
    for place in (note_of(path), path + META):
        try:
            return read_meta(files.content(place))
        except (OSError, ValueError):
            continue
    return None


def _row(one: Letter) -> dict[str, Any]:
    dead = one.dead
    row: dict[str, Any] = {
        "id": one.chunk_id,
        "plugin": dead.get("plugin", one.plugin),
        "worker": one.worker,
        "waits": one.waits,
        "reason": dead.get("reason", "damaged" if not one.path.endswith(LETTER) else None),
        "error": dead.get("error"),
        "attempts": dead.get("attempts"),
        "secondary_attempts": dead.get("secondary_attempts"),
        "events": one.told.events if one.told is not None and one.told.events >= 0 else None,
        "bytes": one.size,
        "created": round(one.told.created, 3) if one.told is not None else None,
        "failed_since": dead.get("failed_since"),
        "given_up": round(one.written, 3),
    }
    return {**row, **keys_of(one.told.meta if one.told is not None else Meta()), "path": one.path}


def _ls(chosen: list[Letter], flags: argparse.Namespace) -> int:
    rows = [_row(one) for one in chosen]
    if flags.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    if not rows:
        sys.stdout.write("no dead letters\n")
    for row in rows:
        when = datetime.fromtimestamp(row["given_up"], UTC).isoformat(timespec="seconds")
        events = "?" if row["events"] is None else row["events"]
        tries = f"  {row['attempts']} attempts" if row["attempts"] else ""
        tag = f"  tag={row['tag']}" if row["tag"] is not None else ""
        why = f"  {row['error'] or row['reason'] or ''}".rstrip() + ("  (waits for its output)" if row["waits"] else "")
        sys.stdout.write(
            f"{row['id']}  {when}  {row['plugin']}  {events} events  {row['bytes']} bytes{tries}{tag}{why}\n"
        )
    return 0


def _show(chosen: list[Letter], flags: argparse.Namespace) -> int:
    files = Files()
    shown = [{**_row(one), "content": readable(files.content(one.path), flags.n)} for one in chosen]
    if flags.json:
        sys.stdout.write(json.dumps(shown, indent=1) + "\n")
        return 0
    for row in shown:
        content = row.pop("content")
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in row.items() if value is not None))
        for one in content:
            sys.stdout.write((one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) + "\n")
        sys.stdout.write("\n")
    return 0


def _replay(chosen: list[Letter], flags: argparse.Namespace) -> int:
    files = Files()
    moved = 0
    for one in chosen:
        if one.waits:
            continue
        if not one.path.endswith(LETTER):
            if flags.ids:
                raise Error(f"{one.path} is what was left of a damaged chunk: it cannot be delivered")
            continue
        told = one.told
        if told is None:
            if flags.tag is None:
                raise Error(f"{one.path} has no notes: tell its tag with --tag")
            told = ChunkMeta(bytes.fromhex(one.chunk_id), 0, one.written, one.written, Meta(flags.tag))
        folder = os.path.join(notes_of(os.path.dirname(one.path)), REPLAY)
        place = Location(folder, REPLAYED, LETTER)
        target = os.path.join(folder, place.name(QUEUED, bytes.fromhex(one.chunk_id)))
        files.makedirs(folder, _DIR_MODE)
        facts = os.stat(os.path.dirname(one.path))
        if os.geteuid() == 0:  # its worker may be somebody else
            for made in (os.path.dirname(folder), folder):
                os.chown(made, facts.st_uid, facts.st_gid)
        files.replace(target + META, write_meta(told), _MODE)
        files.rename(one.path, target)  # from here on it is its output's
        files.unlink(note_of(one.path))
        files.unlink(one.path + META)
        moved += 1
    sys.stdout.write(f"{moved} letters are delivered once more, at once where their output runs, else when it starts\n")
    return 0


def _purge(chosen: list[Letter], flags: argparse.Namespace) -> int:
    files = Files()
    # What an output may have in hand goes only when it is named.
    chosen = [one for one in chosen if not one.waits or flags.ids]
    for one in chosen:
        files.unlink(one.path)
        files.unlink(note_of(one.path))
        files.unlink(one.path + META)
    sys.stdout.write(f"{len(chosen)} letters are removed\n")
    return 0
