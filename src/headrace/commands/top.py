"""`headrace top`: a live table of what runs: workers, components, pools of connections."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from headrace.commands.stats import megabytes
from headrace.commands.tap import coloured, visible
from headrace.errors import Error
from headrace.supervisor.admin import rundir
from headrace.supervisor.admin.client import collect
from headrace.supervisor.admin.exposition import components, current, drops, pools_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELP: Final = """\
IN/S, OUT/S: events a second since the last look. ERR: failed deliveries, or events refused at once. DROP: events that
left without being delivered (of a filter: that it did not let pass). AGE: of the oldest chunk in the buffer. RETRY:
failed attempts in a row now, and the seconds until the next one. Where standard output is no terminal, or a dumb one,
each look is printed below the last one.

examples:
  headrace top                    every two seconds, until Ctrl-C
  headrace top --interval 10      every ten seconds
  headrace top --once             one look, with the rates of a second
"""
_HEAD: Final = ("COMPONENT", "TYPE", "IN/S", "OUT/S", "ERR", "DROP", "BUFFER", "AGE", "RETRY")
_WIDTHS: Final = (24, 16, 9, 9, 8, 8, 10, 8, 12)
_COUNTERS: Final = ("received_events", "sent_events")
_POOLS: Final = 8
_UNITS: Final = ("", "k", "M", "G", "T")

Row = dict[str, Any]


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "A live table of workers, components and pools of connections."
    command.epilog = HELP
    command.add_argument("pid", nargs="?", type=int, metavar="PID", help="process id of the master, where several run")
    command.add_argument("--interval", type=_seconds, default=2.0, metavar="SECONDS", help="between two looks (2)")
    command.add_argument("--once", action="store_true", help="one look, with the rates of a second")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("from 0.1 to 3600")
    return seconds


def run(flags: argparse.Namespace) -> int:
    """Show until told to stop; the exit status. Raises Error when nothing runs."""
    folder = rundir.find(flags.pid)
    lively = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not flags.once
    before: dict[tuple[str, str], Row] = {}
    seen: float | None = None
    if flags.once:
        before, seen = rows_of(collect(folder)["workers"]), time.monotonic()
        time.sleep(1.0)
    try:
        while True:
            now = time.monotonic()
            try:
                figures = collect(folder)
            except Error:
                if seen is None:
                    raise
                sys.stdout.write("headrace has ended\n")
                return 0
            rows = rows_of(figures["workers"])
            size = shutil.get_terminal_size((110, 50))
            lines = table(figures, rows, before, now - seen if seen is not None else 0.0, bold=lively and coloured())
            if lively:
                shown = [line if "\x1b" in line else line[: size.columns] for line in lines[: size.lines - 1]]
                sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
            else:
                sys.stdout.write("\n".join(lines) + "\n\n")
            sys.stdout.flush()
            if flags.once:
                return 0
            before, seen = rows, now
            time.sleep(max(flags.interval - (time.monotonic() - now), 0.0))
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return 0


def rows_of(workers: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Row]:
    """The figures of each component, of all workers together: sums, and the worst age and retry."""
    rows: dict[tuple[str, str], Row] = {}
    for worker in current(workers):
        for name, plugin in worker.get("pipeline", {}).get("plugins", {}).items():
            if plugin["kind"] not in {"input", "filter", "output"}:
                continue
            row = rows.setdefault((plugin["kind"], name), {"type": plugin["type"]})
            sums = {**components(plugin), "dropped": sum(drops(plugin).values())}
            if "buffered" in plugin:
                sums["buffer"] = plugin["buffer_total_queued_size"]
                for figure in ("oldest_chunk_age", "retry_step", "retry_in"):
                    row[figure] = max(row.get(figure, 0), plugin[figure])
            for figure, value in sums.items():
                if value is not None:
                    row[figure] = row.get(figure, 0) + value
    return rows


def table(
    figures: Mapping[str, Any],
    rows: Mapping[tuple[str, str], Row],
    before: Mapping[tuple[str, str], Row],
    seconds: float,
    *,
    bold: bool = False,
) -> list[str]:
    """The lines of one look. seconds: since `before`, 0 for the first look (which has no rates)."""
    master = figures["master"]
    lines = [f"headrace {master['pid']}  up {master['uptime']:,.0f} s  {visible(' '.join(master['sources'][:3]))}"]
    for worker in figures["workers"]:
        line = f"worker {worker['worker']}  {worker['state']}"
        if "rss" in worker:
            lag, most = (worker["loop"][name] * 1000 for name in ("lag", "lag_max"))
            line += f"  {megabytes(worker['rss'])}  loop lag {lag:.1f} ms (max {most:.0f})"
        if "edge" in worker:
            line += f"  {worker['edge']['requests']:,} requests  {worker['edge']['connections']:,} connections"
        lines.append(line)
    if rows:
        head = _line(_HEAD)
        lines += ["", f"\x1b[1m{head}\x1b[0m" if bold else head]
        order = {"input": 0, "filter": 1, "output": 2}
        for key in sorted(rows, key=lambda key: order[key[0]]):
            line = _line(_cells(key[1], rows[key], before.get(key, {}), seconds))
            lines.append(f"\x1b[31m{line}\x1b[0m" if bold and rows[key].get("retry_step") else line)
    pools = [pool for worker in current(figures["workers"]) for pool in pools_of(worker)]
    if pools:
        lines += ["", *_pools(pools)]
    return lines


def _cells(name: str, row: Row, old: Row, seconds: float) -> list[str]:
    rates = []
    for figure in _COUNTERS:
        known = figure in row and seconds > 0
        rates.append(short((row[figure] - old.get(figure, 0)) / seconds) if known and figure in old else "-")
    buffered = "buffer" in row
    retry = ""
    if row.get("retry_step"):
        retry = f"{row['retry_step']} ({row['retry_in']:.0f} s)"
    return [
        visible(name),
        visible(row["type"]),
        *rates,
        short(row.get("errors", 0)),
        short(row["dropped"]),
        short(row["buffer"]) + "B" if buffered else "-",
        f"{row['oldest_chunk_age']:,.0f} s" if buffered else "-",
        retry or ("0" if buffered else "-"),
    ]


def _pools(pools: Sequence[Mapping[str, Any]]) -> list[str]:
    together: dict[tuple[str, str], dict[str, int]] = {}
    for pool in pools:
        sums = together.setdefault((pool["owner"], pool["key"]), {})
        for figure in ("idle", "in_use", "opened", "reused", "stale"):
            sums[figure] = sums.get(figure, 0) + (pool[figure] or 0)
    busiest = sorted(together.items(), key=lambda item: -item[1]["reused"] - item[1]["opened"])
    lines = [f"{'POOL':<40} {'IDLE':>7} {'IN USE':>7} {'OPENED':>9} {'REUSED':>9} {'STALE':>7}"]
    for (owner, key), sums in busiest[:_POOLS]:
        name = visible(f"{owner} {key}")[:40]
        lines.append(
            f"{name:<40} {short(sums['idle']):>7} {short(sums['in_use']):>7} {short(sums['opened']):>9}"
            f" {short(sums['reused']):>9} {short(sums['stale']):>7}"
        )
    if len(busiest) > _POOLS:
        lines.append(f"and {len(busiest) - _POOLS} more: headrace stats --prometheus, or /_headrace/pools")
    return lines


def _line(cells: Sequence[str]) -> str:
    first = [f"{cell[:width]:<{width}}" for cell, width in zip(cells[:2], _WIDTHS[:2], strict=True)]
    rest = [f"{cell:>{width}}" for cell, width in zip(cells[2:], _WIDTHS[2:], strict=True)]
    return " ".join([*first, *rest]).rstrip()


def short(value: float) -> str:
    """A number in few characters: 950, 12.3k, 4.56M."""
    for unit in _UNITS:
        if abs(value) < 1000 or unit == _UNITS[-1]:
            break
        value /= 1000
    if unit:
        return f"{value:.3g}{unit}" if abs(value) < 999.5 else f"{value:.0f}{unit}"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
