"""Request handlers in Python, for nginx.conf beside this file."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.edge.request import Request


def guard(request: Request) -> int | None:
    """Access phase: 403 without a token; None lets the request pass."""
    return None if request.header_in(b"x-token") == b"secret" else 403


async def greet(request: Request) -> None:
    """Content phase: a coroutine may wait; the worker goes on with other requests meanwhile."""
    await asyncio.sleep(0.01)
    name = request.var(b"arg_name") or b"world"
    request.headers_out.set(b"X-Greeted", name)
    body = json.dumps({"hello": name.decode("utf-8", "replace")}).encode() + b"\n"
    request.respond(200, body, b"application/json")


async def size(request: Request) -> int | None:
    """Content phase: read the request body; an int is an error status."""
    waiting = request.read_body()
    if waiting is not None:
        await waiting
    if not request.body:
        return 400
    request.respond(200, b"%d bytes\n" % len(request.body), b"text/plain")
    return None
