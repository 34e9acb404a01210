"""A pipeline around one in_tail: real files, virtual time."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import BufferOverflow
from headrace.pipeline.plugin import Output
from headrace.plugins.in_tail import TailInput
from headrace.testing.pipelines import Direct, Kit

CONF = """
<source>
  @type tail
  {path}
  {pos}
  tag t
  {more}
  {parse}
</source>
<match **>
  @type {output}
</match>
"""
NONE = "<parse>\n@type none\n</parse>"


class Rig:
    """Files in `folder`; `lines` is what was emitted."""

    def __init__(self, folder, more="", *, path="{folder}/x.log", pos=True, parse=NONE, output="direct", plugins=()):
        self.folder = Path(folder)
        self.log = self.folder / "x.log"
        self.pos = self.folder / "pos" / "x.pos"
        self.text = CONF.format(
            path="path " + path.format(folder=folder),
            pos=f"pos_file {self.pos}" if pos else "",
            more=more,
            parse=parse,
            output=output,
        )
        self.plugins = plugins
        self.kit = None
        self.running = False
        self.before = []

    async def start(self, seconds=0.5, prepare=None):
        self.kit = Kit(self.text, plugins=self.plugins)
        if prepare is not None:
            prepare(self.kit)
        await self.kit.start()
        self.running = True
        await self.kit.clock.elapse(seconds)
        return self

    async def stop(self):
        await self.kit.stop()
        self.running = False
        self.before += self.now()

    async def elapse(self, seconds=0.3):
        await self.kit.clock.elapse(seconds)

    async def kill(self):
        """As kill -9: no position is written any more, nothing is flushed."""
        tail = self.tail
        self.before += self.now()
        self.running = False
        tail._running = False
        await tail._end_tasks()
        tail._let_go()

    def now(self):
        """What this run emitted: (tag, record)."""
        return [(tag, record) for tag, _time, record in self.kit.of(Direct).events]

    @property
    def tail(self):
        return self.kit.of(TailInput)

    @property
    def events(self):
        return self.before + (self.now() if self.running else [])

    @property
    def lines(self):
        return [record["message"] for _tag, record in self.events]

    @property
    def stats(self):
        return self.tail.stats()

    def positions(self):
        """Path's name -> offset, of the lines that count."""
        found = {}
        for line in self.pos.read_text().splitlines():
            path, offset, _inode = line.split("\t")
            if offset != "f" * 16:
                found[os.path.basename(path)] = int(offset, 16)
        return found


class Gate(Output):
    """Takes events when `open`; else waits, or refuses."""

    name = "gate"
    prefers_buffer = False

    def __init__(self):
        self.events = []
        self.room = 99
        """Batches that it takes."""
        self.waiting = None
        self.offers = 0

    def process(self, tag, batch):
        self.offers += 1
        if not self.room:
            raise BufferOverflow("full")
        self.room -= 1
        self.events += [(tag, time, record) for time, record in batch.events()]
        return self.waiting


def write(path, *lines, mode="a", end="\n"):
    """Append lines."""
    with open(path, mode, encoding="utf-8", newline="") as file:
        file.write("".join(line + end for line in lines))


def numbers(start, count):
    """Lines that differ."""
    return [f"line {number:06d}" for number in range(start, start + count)]
