"""`headrace stats`: figures of a running master and its workers, once or every second."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from headrace.supervisor.admin import rundir
from headrace.supervisor.admin.client import collect, flat


def show(pid: int | None, *, as_json: bool) -> int:
    """Print the figures once; the exit status. Raises Error when nothing (or more than one master) is running."""
    figures = collect(rundir.find(pid))
    if as_json:
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    else:
        sys.stdout.write(text(figures))
    return 0


def watch(pid: int | None) -> int:
    """Print the figures every second, each with its change a second, until interrupted or the master ends."""
    folder = rundir.find(pid)
    before: dict[str, Any] = {}
    clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
    try:
        while folder.is_dir():
            began = time.monotonic()
            figures = collect(folder)
            sys.stdout.write(clear + text(figures, before) + "\n")
            sys.stdout.flush()
            before = dict(flat(figures["total"]))
            time.sleep(max(1.0 - (time.monotonic() - began), 0.0))
    except KeyboardInterrupt:
        return 0
    return 0


def text(figures: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """The figures as lines; with those of a second before, what changed since."""
    master = figures["master"]
    lines = [
        (
            f"master {master['pid']}  generation {master['generation']}  up {master['uptime']:.0f} s  "
            f"{master['rss'] >> 20} MB  {' '.join(master['sources'][:4])}"
        )
    ]
    for worker in figures["workers"]:
        line = f"worker {worker['worker']}  pid {worker['pid']}  {worker['state']}"
        if "rss" in worker:
            line += (
                f"  up {worker['uptime']:.0f} s  {worker['rss'] >> 20} MB  lag {worker['loop']['lag'] * 1000:.1f} ms"
            )
        lines.append(line)
    for name, value in flat(figures["total"]):
        if isinstance(value, dict):
            continue
        change = ""
        if before and name in before and value != before[name]:
            change = f"  {value - before[name]:+,.6g}/s"
        lines.append(f"  {name:<56} {value:>14,.6g}{change}")
    return "\n".join(lines) + "\n"
