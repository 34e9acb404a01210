"""A TCP relay that delays each direction by a fixed time: `relay.py LISTEN_PORT TARGET_PORT MILLISECONDS`."""

from __future__ import annotations

import asyncio
import sys

import uvloop


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass bytes on, each piece `delay` seconds after it came, in order."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send() -> None:
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()

    sender = asyncio.create_task(send())
    try:
        while True:
            data = await reader.read(65536)
            pieces.put_nowait((loop.time() + delay, data))
            if not data:
                break
        await sender
    except OSError:
        sender.cancel()
        writer.close()


async def main(listen: int, target: int, delay: float) -> None:
    """Serve until killed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there_writer, delay), pump(there_reader, writer, delay))
        writer.close()
        there_writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", listen, backlog=1024) as server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
