"""A sink that can be stopped: `python torture_peer.py PORT FILE` writes [monotonic seconds, numbers] lines into FILE."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from torture_rig import Sink


class Noting(Sink):
    async def _answer(self, numbers, writer):
        self.file.write(json.dumps([time.monotonic(), numbers]) + "\n")
        self.file.flush()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()


async def main():
    sink = Noting(int(sys.argv[1]))
    with open(sys.argv[2], "a") as sink.file:
        async with sink:
            print("ready", flush=True)
            await asyncio.Event().wait()


asyncio.run(main())
