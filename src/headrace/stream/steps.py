"""What servers do with a session: steps of the preread phase, and `return`.

A step returns None for the next one, or the status with which the session ends; what has to wait is a coroutine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.errors import Timeout
from headrace.stream import preread

if TYPE_CHECKING:
    from headrace.edge.values import Value
    from headrace.stream.session import Session

Step = Callable[["Session"], "int | Awaitable[int | None] | None"]
Content = Callable[["Session"], "int | Awaitable[int]"]

OK = 200


async def read_hello(session: Session) -> None:
    """ssl_preread: look at the ClientHello and leave it where it is."""
    due = session.clock.now() + session.server.preread_timeout
    while True:
        try:
            session.hello = preread.parse(session.begun)
        except preread.NoHello:
            return
        if session.hello is not None:
            return
        await session.more(due)


def setter(name: bytes, value: Value) -> Step:
    """set: the variable has the value from now on."""

    def step(session: Session) -> None:
        data = session.value(value)
        session.set_slot(name, data)
        session.set_slot(b"map " + name, data)  # what a map of this name has found, and finds no more

    return step


def answer(value: Value) -> Content:
    """return: the value is all that the client gets."""

    async def content(session: Session) -> int:
        data = session.value(value)
        session.stream.write(data)
        session.sent += len(data)
        with contextlib.suppress(Timeout):
            await session.stream.drained(session.server.proxy.timeout)
        return OK

    return content
