"""An echo server on a unix socket, for examples/gateway/nginx.conf: `python echo.py /tmp/headrace-echo.sock`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import cast

import uvloop


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        self.transport = cast("asyncio.WriteTransport", transport)  # uvloop's is one, by its methods

    def data_received(self, data: bytes) -> None:
        """Answer with the same bytes."""
        self.transport.write(data)


async def serve(path: str) -> None:
    """Serve until interrupted."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = await asyncio.get_running_loop().create_unix_server(Echo, path)
    os.chmod(path, 0o777)  # workers of the gateway may run as another user
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(sys.argv[1] if len(sys.argv) > 1 else "/tmp/headrace-echo.sock"))
