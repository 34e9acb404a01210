"""`headrace tap GLOB`: live events at any component of a running pipeline, of all workers together.

The pipeline is never held back: each worker copies at most 1,000 events a second for a tap, keeps at most 1 MB of
them for a reader that is slow, and tells how many it left out. See docs/inside.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgpack

from headrace.pipeline.event import NS, unpack_events
from headrace.plugins.jsoncodec import encode
from headrace.supervisor.admin import rundir
from headrace.supervisor.admin.feeds import Feeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HELP: Final = """\
GLOB is compared with each plugin's @id (or the name that `headrace stats` shows) and with its @type. Without a flag
you see what leaves sources and filters, and what comes to outputs. What an output "leaves" is what it has delivered.

The values of records are shown as they are: whoever may run this command sees what the pipeline carries, passwords
and personal data in records too. Only the user that runs headrace, and root, can connect.

examples:
  headrace tap grep                        what passes the filter with @id grep (or of @type grep), until Ctrl-C
  headrace tap 'output_*' --limit 10       the next ten events that come to outputs without an @id
  headrace tap out --outputs-of --json     what the output with @id out has delivered, a JSON object a line
  headrace tap '*' --rate --for 10         events a second at every component, for ten seconds
"""
_TURN: Final = 0.25  # seconds
_COLOURS: Final = {"component": "36", "tag": "33", "time": "2"}
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "Show live events at components of a running pipeline, without holding it back."
    command.epilog = HELP
    command.add_argument("glob", metavar="GLOB", help="plugins, by @id or @type; * and ? and [...] as in a shell")
    sides = command.add_mutually_exclusive_group()
    sides.add_argument("--inputs-of", action="store_const", const="in", dest="side", help="what comes to them")
    sides.add_argument("--outputs-of", action="store_const", const="out", dest="side", help="what leaves them")
    command.add_argument("--limit", type=_positive, metavar="N", help="end after N events")
    command.add_argument("--for", type=_seconds, dest="seconds", metavar="SECONDS", help="end after so many seconds")
    command.add_argument("--rate", action="store_true", help="no events: how many a second, at each component")
    command.add_argument("--json", action="store_true", help="a JSON object a line")
    command.add_argument("--pid", type=int, metavar="PID", help="process id of the master, where several run")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError("more than 0")
    return seconds


def run(flags: argparse.Namespace) -> int:
    """Show events until told to stop; the exit status. Raises Error when nothing fits or runs."""
    query = {"glob": flags.glob, "side": flags.side or "", "counts": "1" if flags.rate else ""}
    feeds = Feeds(rundir.find(flags.pid), query)
    view = _View(flags)
    end = time.monotonic() + flags.seconds if flags.seconds is not None else None
    try:
        while not view.done and (end is None or time.monotonic() < end):
            left = _TURN if end is None else max(min(end - time.monotonic(), _TURN), 0.0)
            for name, index, data in feeds.read(left):
                view.take(name, index, data)
            view.turn()
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    finally:
        feeds.close()
    sys.stdout.flush()
    view.tell()
    return 0


class _View:
    """What is printed."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self._flags = flags
        self._left: float = flags.limit if flags.limit is not None and not flags.rate else float("inf")
        self._streams: dict[str, msgpack.Unpacker] = {}
        self._figures: dict[str, dict[str, Any]] = {}
        self._printed = 0
        self._told = 0
        self._colours = coloured()
        self._before: dict[tuple[str, str], int] = {}
        self._rated = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether the limit is reached."""
        return self._left <= 0

    def take(self, name: str, worker: int, data: bytes) -> None:
        """What one worker sent."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = msgpack.Unpacker(
                raw=False, unicode_errors="surrogateescape", max_buffer_size=1 << 28
            )
        stream.feed(data)
        for frame in stream:
            if isinstance(frame, dict):
                self._figures[name] = frame
                continue
            for line in self._lines(worker, *frame):
                if self._left <= 0:
                    return
                self._left -= 1
                self._printed += 1
                sys.stdout.write(line + "\n")

    def _lines(self, worker: int, component: str, side: str, tag: str, entries: list[bytes]) -> Iterator[str]:
        for entry in entries:
            try:
                events = unpack_events(entry)
            except ValueError:
                events = []
            for when, record in events:
                yield self._line(worker, component, side, tag, when, record)

    def _line(self, worker: int, component: str, side: str, tag: str, when: int, record: Any) -> str:
        if self._flags.json:
            head = {"worker": worker, "component": component, "side": side, "tag": tag, "time": moment(when)}
            shown = json.loads(encode(record))
            return json.dumps({**head, "record": shown})
        arrow = ">" if side == "out" else "<"
        text = _CONTROL.sub(_escape, encode(record).decode())
        name = self._painted("component", visible(component))
        return f"{self._painted('time', moment(when))} {name} {arrow} {self._painted('tag', visible(tag))} {text}"

    def _painted(self, what: str, text: str) -> str:
        return f"\x1b[{_COLOURS[what]}m{text}\x1b[0m" if self._colours else text

    def turn(self) -> None:
        """What is told now and then: rates, and how much is left out."""
        now = time.monotonic()
        if now - self._rated < 1.0:
            return
        if self._flags.rate:
            self._rates(now - self._rated)
        elif (dropped := self._sum("dropped")) > self._told:
            sys.stderr.write(f"headrace: {dropped - self._told} events were not shown: there are too many\n")
            self._told = dropped
        self._rated = now

    def _rates(self, seconds: float) -> None:
        totals: dict[tuple[str, str], int] = {}
        for figures in self._figures.values():
            for component, side, events, _batches in figures["points"]:
                totals[component, side] = totals.get((component, side), 0) + events
        for (component, side), events in sorted(totals.items()):
            rate = max(events - self._before.get((component, side), 0), 0) / seconds
            if self._flags.json:
                row = {"component": component, "side": side, "events": events, "rate": round(rate, 1)}
                sys.stdout.write(json.dumps(row) + "\n")
            else:
                name = self._painted("component", f"{visible(component):<30}")
                sys.stdout.write(f"{name} {side:<3} {rate:>12,.0f}/s {events:>15,}\n")
        if totals and len(totals) > 1 and not self._flags.json:
            sys.stdout.write("\n")
        self._before = totals

    def _sum(self, name: str) -> int:
        return sum(figures[name] for figures in self._figures.values())

    def tell(self) -> None:
        """Say how much there was."""
        if not self._flags.rate:
            seen, dropped = self._sum("seen"), self._sum("dropped")
            more = f", {dropped} left out" if dropped else ""
            sys.stderr.write(
                f"headrace: {self._printed} events shown of {max(seen, self._printed)} that went by{more}\n"
            )


def coloured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether standard output shows colours: a terminal that is not dumb, and nobody said no (no-color.org)."""
    return sys.stdout.isatty() and environment.get("TERM", "dumb") != "dumb" and not environment.get("NO_COLOR")


def moment(ns: int) -> str:
    """A time in UTC, with nine decimals."""
    seconds, rest = divmod(ns, NS)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{seconds}.{rest:09d}"


def visible(text: str) -> str:
    """A text that does nothing to a terminal."""
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"
