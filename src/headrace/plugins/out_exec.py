"""Output `exec`: a command for each chunk, with the path of a file that holds it (https://docs.fluentd.org/output/exec).

The path is the command's last argument. The chunk is delivered when the command ends with 0; anything else is tried
again. As in Fluentd a lane does not wait for its command: up to MOST run at a time.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import Param, raw_section, section, time
from headrace.errors import Error
from headrace.pipeline.plugin import Output
from headrace.plugins.exec.child import Child, as_command, ended_how, shown
from headrace.plugins.formatter_msgpack import MsgpackFormatter
from headrace.plugins.inject import Inject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems
    from headrace.pipeline.chunk import Chunk
    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.pipeline.lanes import Lane
    from headrace.pipeline.plugin import Formatter

MOST: Final = 64
"""Commands that run at a time."""


class ExecInject(Inject):
    """What is added to a record."""

    time_type = Inject.time_type.with_default("string")
    localtime = Inject.localtime.with_default(False)


class ExecOutput(Output):
    """Runs a command for each chunk."""

    old_style: ClassVar[Mapping[str, str]] = {"inject": "", "format": "tsv", "buffer": "time"}
    buffer_defaults: ClassVar[Mapping[str, str]] = {"delayed_commit_timeout": "300"}

    command: Param[str | list[str]] = Param(
        as_command, type_name="string or array", doc="Command for the shell, or an array; a file's path is added"
    )
    command_timeout = time(default=270.0, doc="Seconds after which a command is ended and counts as failed")
    format_section = raw_section(name="format", doc="The formatter of the file; absent: tsv")
    inject = section(ExecInject, name="inject", doc="What is added to a record")

    def validate(self, problems: Problems) -> None:
        """Check the time limit."""
        super().validate(problems)
        if self.command_timeout <= 0:
            problems.error('parameter "command_timeout" must be above 0', self.place_of("command_timeout"))

    def provision(self, context: Context) -> None:
        """Make the formatter."""
        if self.format_section is None:
            self._formatter: Formatter = context.make_default("formatter", "tsv", self, "format")
        else:
            self._formatter = context.make("formatter", self.format_section, default_type="tsv")
        self._inject = self.inject.injector(context, self)
        self._lines = not isinstance(self._formatter, MsgpackFormatter)

    async def start(self) -> None:
        """Prepare to run commands."""
        self._places = asyncio.Semaphore(MOST)
        self._tasks: set[asyncio.Task[None]] = set()
        self.commands = 0
        self.failures = 0

    def format(self, tag: str, time: int, record: Record) -> bytes:
        """One record as the formatter writes it, a line where it writes text."""
        if self._inject is not None:
            record = self._inject(tag, time, record)
        text = self._formatter.format(tag, time, record)
        return text.removesuffix(b"\n").removesuffix(b"\r") + b"\n" if self._lines else text

    async def write(self, chunk: Chunk, lane: Lane) -> None:
        """Run the command and wait for it (as a <secondary>)."""
        await self._run(chunk)

    async def try_write(self, chunk: Chunk, lane: Lane) -> None:
        """Begin to run the command."""
        await self._places.acquire()
        task = self.context.loop.create_task(self._in_background(chunk), name=f"{self.plugin_id} command")
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.release()

    async def _in_background(self, chunk: Chunk) -> None:
        try:
            await self._run(chunk)
        except (Error, OSError, ValueError) as error:
            self.rollback(chunk.id, error)
        else:
            self.commit(chunk.id)

    async def _run(self, chunk: Chunk) -> None:
        fd, path = tempfile.mkstemp(prefix="headrace-out-exec-")
        child: Child | None = None
        clock = self.context.clock
        try:
            with open(fd, "wb") as file:  # noqa: ASYNC230 - a file in memory, or as good as
                file.write(chunk.read())
            self.commands += 1
            command = self.command
            command = f"{command} {shlex.quote(path)}" if isinstance(command, str) else [*command, path]
            async with clock.timeout(self.command_timeout, f"{shown(self.command)} takes longer than command_timeout"):
                child = await Child.start(command, clock, read=False)
                status = await child.wait()
            if status:
                raise Error(f"{shown(self.command)}: {ended_how(status)}", kind="exec", retryable=True)
        except BaseException:
            self.failures += 1
            raise
        finally:
            if child is not None:
                await child.end()
            os.unlink(path)

    async def stop(self) -> None:
        """End the commands that still run: their chunks are tried again, or stay in the buffer."""
        tasks = set(getattr(self, "_tasks", ()))
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def stats(self) -> dict[str, Any]:
        """Commands, and how many of them failed."""
        return {"commands": getattr(self, "commands", 0), "failures": getattr(self, "failures", 0)}
