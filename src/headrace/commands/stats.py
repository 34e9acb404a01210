"""`headrace stats`: figures of running masters and their workers, once or every second."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.errors import Error
from headrace.supervisor.admin import rundir
from headrace.supervisor.admin.client import collect, flat
from headrace.supervisor.admin.exposition import render

Before = Mapping[str, float]
"""Figures of an earlier look, by their path."""

_CELL: Final = 34  # characters; a longer figure takes the room of two
_WIDTH: Final = 105  # characters, where standard output is no terminal
_ON_TOP: Final = ("uptime", "rss", "loop", "gc_collections")  # the lines of the workers tell of these
_PLUGINS: Final = "pipeline.plugins."


def show(pid: int | None, *, as_json: bool = False, everything: bool = False) -> int:
    """Print the figures of one master, or of all, once; the exit status. Raises Error when none is running."""
    found = _look(pid)
    if as_json:
        sys.stdout.write(json.dumps(_document(found, pid), indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(text(figures, everything=everything) for figures in found))
    return 0


def prometheus(pid: int | None) -> int:
    """Print the figures of one master's workers for Prometheus; the exit status. Raises Error when none runs."""
    figures = collect(rundir.find(pid))
    sys.stdout.write(render(figures["workers"]).decode())
    return 0


def watch(pid: int | None, *, as_json: bool = False, everything: bool = False) -> int:
    """Print the figures every second, each with its change a second, until interrupted or the last master ends.

    as_json: a line with all figures every second. Raises Error when none is running at the beginning.
    """
    before: dict[int, tuple[float, Before]] = {}
    clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() and not as_json else ""
    found = _look(pid)
    try:
        while found:
            began = time.monotonic()
            if as_json:
                sys.stdout.write(json.dumps(_document(found, pid)) + "\n")
            else:
                parts = []
                for figures in found:
                    then, old = before.get(figures["master"]["pid"], (began, {}))
                    parts.append(text(figures, old, seconds=began - then, everything=everything))
                sys.stdout.write(clear + "\n".join(parts) + "\n")
            sys.stdout.flush()
            before = {figures["master"]["pid"]: (began, dict(_numbers(figures["total"]))) for figures in found}
            time.sleep(max(1.0 - (time.monotonic() - began), 0.0))
            found = _look(pid, patient=True)
    except KeyboardInterrupt:
        return 0
    return 0


def _look(pid: int | None, *, patient: bool = False) -> list[dict[str, Any]]:
    """Figures of the masters; patient: none when none is running. One that ends meanwhile is left out."""
    found: list[dict[str, Any]] = []
    problem: Error | None = None
    try:
        folders = rundir.find_all(pid)
    except Error as error:
        folders, problem = [], error
    for folder in folders:
        try:
            found.append(collect(folder))
        except Error as error:
            problem = error
    if problem is not None and not found and not patient:
        raise problem
    return found


def _document(found: Sequence[dict[str, Any]], pid: int | None) -> dict[str, Any]:
    """One master's figures as they are; those of several, when no PID chooses, in a list."""
    return found[0] if len(found) == 1 or pid is not None else {"masters": list(found)}


def text(
    figures: Mapping[str, Any], before: Before | None = None, *, seconds: float = 1.0, everything: bool = False
) -> str:
    """The figures of one master as lines; with those of `seconds` before, what changed a second.

    everything: a line for each figure, those of each lane too. Without it several stand on a line, and groups of
    figures that are all 0 (nothing was dropped, say) are left out.
    """
    master = figures["master"]
    lines = [
        f"master {master['pid']}  {' '.join(master['sources'][:4])}",
        f"  up {master['uptime']:,.0f} s  {megabytes(master['rss'])}  generation {master['generation']}",
    ]
    for worker in figures["workers"]:
        line = f"worker {worker['worker']}  pid {worker['pid']}  {worker['state']}"
        if "rss" in worker:
            lag = worker["loop"]["lag"] * 1000
            line += f"  up {worker['uptime']:,.0f} s  {megabytes(worker['rss'])}  lag {lag:.1f} ms"
        lines.append(line)
    changes = _Changes(before or {}, seconds)
    if everything:
        lines += [f"  {name:<60} {value:>16}{changes.of(name, raw)}" for name, value, raw in _rows(figures["total"])]
    else:
        width = shutil.get_terminal_size((_WIDTH, 40)).columns
        total = {key: value for key, value in figures["total"].items() if key not in _ON_TOP}
        for title, cells in _groups(total, changes):
            lines.append(f"  {title.removeprefix(_PLUGINS)}")
            lines += (f"    {line}" for line in _filled(cells, width - 4))
    return "\n".join(lines) + "\n"


class _Changes:
    """What became of a figure, a second."""

    def __init__(self, before: Before, seconds: float) -> None:
        self._before = before
        self._seconds = max(seconds, 0.001)

    def of(self, name: str, value: float) -> str:
        old = self._before.get(name, value)
        return "" if old == value else f" ({plain((value - old) / self._seconds, sign='+', digits=1)}/s)"


def _numbers(total: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in flat(total):
        if isinstance(value, (int, float)):
            yield name, value


def _rows(total: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    for name, value in _numbers(total):
        yield name, _shown(name, value), value


def _shown(name: str, value: float) -> str:
    return megabytes(value) if name.rpartition(".")[2] == "rss" else plain(value)


def _groups(figures: Mapping[str, Any], changes: _Changes, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """(title, cells) of each mapping that has figures itself; mappings by number (of lanes) are left out."""
    own = {key: value for key, value in figures.items() if isinstance(value, (int, float))}
    if any(own.values()):
        names = {key: f"{path}.{key}" if path else str(key) for key in own}
        yield (
            path,
            [f"{key} {_shown(key, value)}{changes.of(names[key], value)}" for key, value in own.items()],
        )
    for key, value in figures.items():
        if isinstance(value, Mapping) and value and not all(str(name).isdigit() for name in value):
            yield from _groups(value, changes, f"{path}.{key}" if path else str(key))


def _filled(cells: Sequence[str], width: int) -> Iterator[str]:
    """Lines of cells in columns, as many as fit."""
    line = ""
    for cell in cells:
        if line and len(line) + len(cell) > width:
            yield line.rstrip()
            line = ""
        line += cell + " " * (-(len(cell) + 2) % _CELL + 2)
    if line:
        yield line.rstrip()


def megabytes(size: float) -> str:
    """A size in bytes, for people."""
    return f"{size / (1 << 20):,.1f} MB"


def plain(value: float, *, sign: str = "", digits: int = 3) -> str:
    """A number with separators between thousands, without an exponent and without zeros at its end."""
    if value == int(value):
        return f"{int(value):{sign},}"
    shown = f"{value:{sign},.{digits}f}".rstrip("0").rstrip(".")
    return shown if float(shown.replace(",", "")) else "0"
