"""A reader on the loop that is not lost when the loop lets it go by itself.

On EPOLLERR (a reset by the peer, an ICMP error of a datagram socket) uvloop calls the reader once, whether
there are bytes before the error or not, and then closes its poll: who read bytes and waits for more would wait
for ever, and asking the socket after each read would cost a system call. What uvloop does let be seen is that it
drops the callback. So a watch is a weak reference to the callback, which only the loop holds; when it dies while
the watch is still wanted, the loop is asked anew, and, since the socket is at its end, answers at once.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    _Base = weakref.ref[Callable[..., object]]
else:
    _Base = weakref.ref


class Watched(Protocol):
    """Who has a watch, and keeps it as long as it is wanted: a watch that is dropped says nothing."""

    def watch_again(self, gone: Watch) -> None:
        """The loop has let the reader go: if this watch is still wanted, remove the reader and add a new one."""


class Watch(_Base):
    """A reader in force. owner: who hears when the loop has let it go."""

    __slots__ = ("fd", "loop", "owner")

    fd: int
    loop: asyncio.AbstractEventLoop
    owner: Watched


def watch(loop: asyncio.AbstractEventLoop, fd: int, callback: Callable[..., object], owner: Watched) -> Watch:
    """Add a reader to the loop. callback: made for this call, so that nobody but the loop keeps it."""
    made = Watch(callback, _let_go)
    made.fd = fd
    made.loop = loop
    made.owner = owner
    loop.add_reader(fd, callback)
    return made


def _let_go(gone: Any) -> None:
    if not gone.loop.is_closed():
        gone.loop.call_soon(gone.owner.watch_again, gone)
