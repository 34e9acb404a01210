"""A program small enough to test the supervisor alone: `python small_program.py CONFIG.json`.

Every worker answers a line with a line: "who" -> "PID GENERATION TEXT"; "hold" answers when the worker
stops or after `hold` seconds; "spin" never comes back to the loop; "crash" ends the process at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

from headrace.errors import Error
from headrace.supervisor.log import FluentLog
from headrace.supervisor.master import Master
from headrace.supervisor.program import Listen, ProcessSettings


class SmallEngine:
    def __init__(self, identity, config):
        self.identity = identity
        self.config = config
        self.answers = 0
        self.stopping = asyncio.Event()
        self.conversations = set()

    async def start(self, loop, clock, sockets):
        if self.config.get("die_at_start"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.config.get("fail_at_start"):
            raise Error("the configuration asks for it")
        self.server = await asyncio.start_server(self.converse, sock=sockets["main"].dup())

    async def converse(self, reader, writer):
        self.conversations.add(asyncio.current_task())
        try:
            while line := await reader.readline():
                self.answers += 1
                await self.act(line.strip().decode())
                writer.write(f"{os.getpid()} {self.identity.generation} {self.config['text']}\n".encode())
                await writer.drain()
                if self.stopping.is_set():
                    break
        finally:
            writer.close()
            self.conversations.discard(asyncio.current_task())

    async def act(self, word):
        if word == "spin":
            while True:
                pass
        elif word == "crash":
            os._exit(9)
        elif word == "hold":
            await asyncio.sleep(self.config.get("hold", 0.2))

    async def stop(self, *, fast, within):
        self.server.close()
        self.stopping.set()
        if fast:
            return
        if self.config.get("never_stop"):
            await asyncio.sleep(1000)
        await asyncio.sleep(0.05)  # a connection that asyncio has just accepted has no conversation yet
        while self.conversations:
            _, late = await asyncio.wait(list(self.conversations), timeout=within)
            if late:
                break

    def stats(self):
        return {"small": {"answers": self.answers, "longest_chain": self.identity.index}}

    def reopen_logs(self):
        pass

    def flush(self):
        pass


class SmallProgram:
    def __init__(self, path):
        try:
            self.config = json.loads(Path(path).read_text())
        except ValueError as error:
            raise Error(f"{path} is broken: {error}") from None
        process = {"workers": 2, "prefix": str(Path(path).parent), **self.config.get("process", {})}
        self.process = ProcessSettings(**process)
        self.sources = [path]
        self.log = FluentLog(self.config.get("log"))

    def listens(self):
        def bind():
            sock = socket.create_server(("127.0.0.1", self.config["port"]), backlog=512)
            sock.setblocking(False)
            return sock

        return [Listen("main", bind)]

    def prepare(self, owner):
        if self.config.get("fail_to_prepare"):
            raise Error("not prepared")

    def reopen_logs(self, owner):
        self.log.reopen(owner)

    def engine(self, identity):
        return SmallEngine(identity, self.config)

    def close(self):
        pass


def main():
    path = sys.argv[1]
    try:
        sys.exit(Master(SmallProgram(path), lambda: SmallProgram(path)).run())
    except Error as error:
        sys.exit(f"cannot start: {error}")


if __name__ == "__main__":
    main()
