"""`headrace buffers ls | show | export`: chunks on disk, of a configuration's buffers or of one folder.

    headrace buffers ls fluent.conf
    headrace buffers show fluent.conf 60a2
    headrace buffers export fluent.conf              back to Fluentd, in the places where the same file lets it look
    headrace buffers export --buffer DIR --to DIR

`export` moves: what is written in Fluentd's layout, and on the disk, is forgotten here (`--keep` copies). It needs the
buffers for itself, so the headrace that runs with them is to be stopped first; the others only read.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.errors import Error
from headrace.pipeline import codec, inventory
from headrace.pipeline.event import decoded
from headrace.pipeline.files import Files
from headrace.pipeline.fluentfiles import (
    META,
    QUEUED,
    SINGLE_PREFIX,
    SINGLE_SUFFIX,
    ChunkMeta,
    Location,
    escaped,
    write_meta,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from headrace.pipeline.inventory import Stored
    from headrace.pipeline.pipeline import Pipeline

LAYOUTS: Final = ("file", "file_single")
_MODE: Final = 0o644
_DIR_MODE: Final = 0o755


class Place(NamedTuple):
    """One buffer. key: its one chunk key.

    folders: with its journals, its own first, then those of workers that are gone. adopts: where Fluentd's files of it
    are, the first of them its own.
    """

    name: str
    worker: int
    folders: list[str]
    adopts: list[Location]
    single: bool
    key: str | None
    compress: int | None
    backup: str


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    commands = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = commands.add_parser("ls", help="the chunks: events, bytes, age")
    show = commands.add_parser("show", help="one chunk with its events")
    export = commands.add_parser("export", help="move chunks into files that Fluentd resumes")
    for one in (ls, show, export):
        one.add_argument("conf", nargs="?", metavar="CONF", help="a fluent.conf: all its buffers on disk")
        one.add_argument("--buffer", metavar="DIR", help="the folder of one buffer, instead of CONF")
        one.add_argument("--plugin", action="append", default=[], dest="plugins", metavar="DIR", help="plugin folder")
    for one in (ls, show):
        one.add_argument("--json", action="store_true", help="as JSON")
    show.add_argument("id", metavar="ID", help="the chunk's id, or its beginning")
    show.add_argument("-n", type=int, default=None, metavar="N", help="events to show (all)")
    export.add_argument("--to", metavar="DIR", help="where to; default: where Fluentd looks with this CONF")
    export.add_argument("--layout", choices=LAYOUTS, help="which of Fluentd's buffers (as in CONF, else file)")
    export.add_argument("--compress", choices=tuple(codec.NAMES), help="of the files (as in CONF, else as they are)")
    export.add_argument("--keep", action="store_true", help="copy: leave the chunks here too")


def run(flags: argparse.Namespace) -> int:
    """Run one action; the exit status."""
    if (flags.conf is None) == (flags.buffer is None):
        raise Error("name a fluent.conf, or a folder with --buffer")
    actions = {"ls": _ls, "show": _show, "export": _export}
    return actions[flags.action](flags)


def _places(flags: argparse.Namespace) -> list[Place]:
    if flags.buffer is not None:
        folder = os.path.realpath(flags.buffer)
        if not os.path.isdir(folder):
            raise Error(f"there is no folder {flags.buffer}")
        adopts = [Location(folder, "buffer", ".log"), Location(folder, SINGLE_PREFIX, SINGLE_SUFFIX, single=True)]
        return [Place("", 0, [folder], adopts, False, None, None, os.path.join(folder, "damaged"))]
    found = [place for pipeline in pipelines(flags.conf, flags.plugins) for place in _of(pipeline)]
    if not found:
        raise Error(f"{flags.conf} has no buffer on disk")
    return found


def pipelines(conf: str, plugins: list[str]) -> list[Pipeline]:
    """The pipelines of all workers of a configuration, built and not started. Raises ConfError."""
    from headrace.conf import fluent  # noqa: PLC0415 - `--buffer` does without
    from headrace.conf.params import Problems  # noqa: PLC0415 - likewise
    from headrace.pipeline.backup import default_root  # noqa: PLC0415 - likewise
    from headrace.pipeline.build import build_pipeline, system_section  # noqa: PLC0415 - likewise
    from headrace.pipeline.context import Settings  # noqa: PLC0415 - likewise
    from headrace.plugins.folder import Folders  # noqa: PLC0415 - likewise

    found: list[Pipeline] = []
    workers = 1
    worker = 0
    while worker < workers:
        problems = Problems(unknown_is_error=False)
        tree = fluent.load(conf, worker_id=str(worker))
        workers = max(system_section(tree, Problems()).workers, 1)
        settings = Settings(worker_id=worker, workers=workers, backup_dir=default_root(conf))
        folders = Folders(plugins)
        made = build_pipeline(tree, lookup=folders.lookup, problems=problems, settings=settings, sources=False)
        problems.raise_first()
        if made is not None:
            found.append(made)
        worker += 1
    return found


def _of(pipeline: Pipeline) -> Iterator[Place]:
    from headrace.plugins.buf_file import FileBuffer  # noqa: PLC0415 - `--buffer` does without

    for runner in pipeline.runners:
        section = runner.section
        if isinstance(section, FileBuffer):
            yield Place(
                runner.output.plugin_id,
                pipeline.context.worker_id,
                [section.folder, *section.elsewhere(pipeline.context)],
                section.adopts(pipeline.context),
                section.single,
                next(iter(section.keys.fields), None),
                codec.NAMES[section.compress],
                runner.backup().folder,
            )


def _chunks(place: Place, files: Files) -> list[Stored]:
    found = [one for folder in place.folders for one in inventory.peek(folder, files)]
    for location in place.adopts:
        found = inventory.peek_files(location, files, place.key) + found
    return found


def _ls(flags: argparse.Namespace) -> int:
    files = Files()
    rows = [_row(place, one) for place in _places(flags) for one in _chunks(place, files)]
    tried = _tried() if rows else {}
    for row in rows:
        row["attempts"], row["error"] = tried.get(row["id"], (None, None))
    if flags.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    if not rows:
        sys.stdout.write("no chunks\n")
    for row in rows:
        keys = " ".join(f"{name}={row[name]}" for name in ("tag", "timekey", "variables") if row[name] is not None)
        owner = f"{row['plugin']} worker {row['worker']}  " if row["plugin"] else ""
        events = "?" if row["events"] < 0 else row["events"]
        sys.stdout.write(
            f"{row['id']}  {owner}{row['kind']}  {events} events  {row['bytes']} bytes  "
            f"{row['age']:.0f} s old  {keys}".rstrip()
            + (f"  {row['attempts']} attempts" if row["attempts"] else "")
            + "\n"
        )
    return 0


def _tried() -> dict[str, tuple[int, str]]:
    """Attempts and last error of chunks, by id, as the processes that run tell them."""
    from headrace.supervisor.admin import rundir  # noqa: PLC0415 - the other actions do without
    from headrace.supervisor.admin.client import collect  # noqa: PLC0415 - likewise

    found: dict[str, tuple[int, str]] = {}
    try:
        for folder in rundir.find_all(None):
            for worker in collect(folder)["workers"]:
                for figures in worker.get("pipeline", {}).get("plugins", {}).values():
                    for one in figures.get("tried_chunks", ()):
                        found[one["id"]] = (one["attempts"], one["error"])
    except Error:
        return found  # none runs
    return found


def _row(place: Place, one: Stored) -> dict[str, Any]:
    return {
        "id": one.chunk_id.hex(),
        "plugin": place.name,
        "worker": place.worker,
        "kind": one.kind,
        "events": one.events,
        "bytes": one.size,
        "created": round(one.created, 3),
        "age": round(max(time.time() - one.created, 0.0), 3),
        **keys_of(one.meta),
        "path": one.path,
    }


def keys_of(meta: Any) -> dict[str, Any]:
    """The chunk keys as JSON can hold them."""
    variables = meta.variables
    if variables is not None:
        variables = {str(name): value if _plain(value) else str(value) for name, value in variables.items()}
    tag = meta.tag.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if meta.tag else meta.tag
    return {"tag": tag, "timekey": meta.timekey, "variables": variables}


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, type(None)))


def _show(flags: argparse.Namespace) -> int:
    files = Files()
    fits = [
        (place, one)
        for place in _places(flags)
        for one in _chunks(place, files)
        if one.chunk_id.hex().startswith(flags.id.lower())
    ]
    if not fits:
        raise Error(f"there is no chunk {flags.id}")
    if len({one.chunk_id for _place, one in fits}) > 1:
        raise Error(f"{len(fits)} chunks begin with {flags.id}: write more of the id")
    place, one = fits[0]
    row = _row(place, one)
    events = readable(inventory.content(one, files), flags.n)
    if flags.json:
        sys.stdout.write(json.dumps({**row, "content": events}, indent=1) + "\n")
        return 0
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in row.items() if value is not None))
    sys.stdout.write(
        "".join(f"{one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}\n" for one in events)
    )
    return 0


def readable(data: bytes, limit: int | None = None) -> list[Any]:
    """The events of a chunk as [seconds, record], or its lines, where it was formatted."""
    from headrace.plugins.jsoncodec import encode  # noqa: PLC0415 - other actions do without

    try:
        events = decoded(data) if data[:1] == b"\x92" else None
    except ValueError:
        events = None
    if events is None:
        return data.decode("utf-8", "backslashreplace").splitlines()[:limit]
    return [[when / 1e9, json.loads(encode(record))] for when, record in events[:limit]]


# Export.


def _export(flags: argparse.Namespace) -> int:
    files = Files()
    places = _places(flags)
    if flags.to is None and flags.buffer is not None:
        raise Error("--buffer needs --to")
    several = len({place.name for place in places}) > 1
    spread = len({place.worker for place in places}) > 1
    total = 0
    for place in places:
        target = _target(place, flags, several=several, spread=spread)
        moved = _move(place, target, flags, files)
        total += moved
        if moved:
            owner = f"{place.name}: " if place.name else ""
            sys.stdout.write(f"{owner}{moved} chunks to {target.folder}\n")
    if not total:
        sys.stdout.write("no chunks\n")
    return 0


def _target(place: Place, flags: argparse.Namespace, *, several: bool, spread: bool) -> Location:
    single = place.single if flags.layout is None else flags.layout == "file_single"
    if flags.to is None:
        own = place.adopts[0] if place.adopts else Location(place.folders[0], "buffer", ".log")
        if own.single == single:
            return own
        folder = own.folder
    else:
        parts = [place.name] * several + [f"worker{place.worker}"] * spread
        folder = os.path.join(os.path.abspath(flags.to), *parts)
    return Location(folder, SINGLE_PREFIX, SINGLE_SUFFIX, True) if single else Location(folder, "buffer", ".log")


def _move(place: Place, target: Location, flags: argparse.Namespace, files: Files) -> int:
    moved = sum(_move_journals(folder, place, target, flags, files) for folder in place.folders)
    for location in place.adopts:
        for one in inventory.peek_files(location, files, place.key) if location != target else ():
            if (pid := files.opened_by([one.path])) is not None:
                raise Error(f"{one.path} is open in process {pid}: stop it first", kind="locked")
            data = files.content(one.path)
            if one.events < 0 and not target.single and not location.single:
                raise Error(
                    f"{one.path} has no .meta file that can be read: start headrace once, it sets such files aside"
                )
            _write(one, data, target, one.created, files)
            moved += 1
            if not flags.keep:
                files.unlink(one.path)
                files.unlink(one.path + META)
    return moved


def _write(one: Stored, data: bytes, target: Location, modified: float, files: Files) -> None:
    """Write one chunk so that it is whole or not there."""
    key = ""
    if target.single:
        variables = one.meta.variables or {}
        if one.meta.timekey is not None or len(variables) + (one.meta.tag is not None) > 1:
            raise Error(f"chunk {one.chunk_id.hex()} has more keys than file_single can keep", kind="layout")
        key = escaped(next(iter(variables.values()), one.meta.tag or ""))
    files.makedirs(target.folder, _DIR_MODE)
    path = os.path.join(target.folder, target.name(QUEUED, one.chunk_id, key))
    if not target.single:
        told = ChunkMeta(one.chunk_id, max(one.events, 0), one.created, modified, one.meta)
        files.replace(path + META, write_meta(told), _MODE)
    files.replace(path, data, _MODE)
    if os.geteuid() == 0:  # whoever owns the folder is to resume them
        facts = os.stat(target.folder)
        for made in (path,) if target.single else (path, path + META):
            os.chown(made, facts.st_uid, facts.st_gid)


def _move_journals(folder: str, place: Place, target: Location, flags: argparse.Namespace, files: Files) -> int:
    log = logging.getLogger("headrace.buffers")
    held = inventory.Held(folder, files, log, backup=place.backup, dir_mode=_DIR_MODE, mode=_MODE)
    moved = 0
    before = 0.0
    try:
        for one, where in held.chunks():
            kind = codec.NAMES[flags.compress] if flags.compress else one.codec
            if flags.compress is None and place.compress is not None:
                kind = place.compress
            before = max(one.created, before + 1e-3)  # Fluentd orders chunks by when they were changed
            _write(one, codec.compress(kind, held.read(one, where)), target, before, files)
            moved += 1
            if not flags.keep:
                held.forget(where)
    finally:
        held.close()
    return moved
