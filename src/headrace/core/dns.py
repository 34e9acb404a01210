"""A resolver of our own: A and AAAA records from given servers (RFC 1035), remembered as long as they say.

For those who must not use the system's resolver: nginx's `resolver` names servers, and so asks neither /etc/hosts
nor a thread. A question goes to the servers in turn, each waits STEP seconds for its answer; answers that were cut
short are asked for again over TCP. Questions about one name at one time are one question.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from headrace.errors import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP: Final = 5.0
"""Seconds that one server has for an answer."""
MOST: Final = 4096
"""Names that are remembered."""
A: Final = 1
CNAME: Final = 5
AAAA: Final = 28
_FAMILIES: Final = {A: socket.AF_INET, AAAA: socket.AF_INET6}
_WORDS: Final = {
    1: "Format error",
    2: "Server failure",
    3: "Host not found",
    4: "Unimplemented",
    5: "Operation refused",
    110: "Operation timed out",
}
_LABELS: Final = 255
"""Steps through the labels and pointers of a name at most."""
_ALIASES: Final = 16
"""CNAMEs that are followed one after the other at most."""
_HEAD: Final = struct.Struct("!6H")
_RECORD: Final = struct.Struct("!2HIH")


class NotResolved(ConnectionFailed):
    """No address. code: the RCODE of the answer (RFC 1035 4.1.1), or 110 when none came."""

    def __init__(self, name: str, code: int) -> None:
        self.code = code
        self.words = _WORDS.get(code, "Unknown error")
        super().__init__(f"{name} could not be resolved ({code}: {self.words})", kind="resolve")


Known = tuple[float, tuple[str, ...]]
"""Until when (monotonic seconds) which addresses hold."""


@dataclass(frozen=True)
class Answer:
    """addresses as text; ttl: seconds they hold; code: the RCODE; cut: the answer was too long for a datagram.

    alias: without addresses, the name that has them (the last CNAME of the chain).
    """

    addresses: tuple[str, ...]
    ttl: int
    code: int
    cut: bool
    alias: str | None = None


def question(number: int, name: str, kind: int) -> bytes:
    """A query for records of a kind, with recursion. Raises ValueError for what is no name."""
    labels = name.rstrip(".").encode("idna" if not name.isascii() else "ascii").split(b".")
    if not all(0 < len(label) < 64 for label in labels) or sum(map(len, labels)) + len(labels) > 254:
        raise ValueError(name)
    packed = b"".join(bytes((len(label),)) + label for label in labels)
    return _HEAD.pack(number, 0x0100, 1, 0, 0, 0) + packed + struct.pack("!xHH", kind, 1)


def _skip_name(data: bytes, at: int) -> int:
    while True:
        size = data[at]
        if size >= 0xC0:
            return at + 2
        at += 1 + size
        if not size:
            return at


def _name(data: bytes, at: int) -> str:
    """The name at a place of a message (RFC 1035 4.1.4). Raises ValueError for one without end."""
    labels: list[str] = []
    for _ in range(_LABELS):
        size = data[at]
        if size >= 0xC0:
            at = (size & 0x3F) << 8 | data[at + 1]
        elif size:
            labels.append(data[at + 1 : at + 1 + size].decode("latin-1"))
            at += 1 + size
        else:
            return ".".join(labels)
    raise ValueError(labels)


def parse(data: bytes, asked: bytes, kind: int) -> Answer | None:
    """The answer to a query; None for a message that is none (another number or question, or broken)."""
    try:
        number, flags, questions, answers, _, _ = _HEAD.unpack_from(data)
        body = asked[12:]
        same = number == int.from_bytes(asked[:2], "big") and questions == 1 and flags & 0x8000
        if not same or data[12 : 12 + len(body)].lower() != body.lower():
            return None
        at = 12 + len(body)
        found: list[str] = []
        alias = None
        ttl = 1 << 31
        for _ in range(answers):
            at = _skip_name(data, at)
            record, klass, seconds, size = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            if klass == 1 and record in {kind, CNAME}:
                ttl = min(ttl, seconds)
                if record == kind:
                    found.append(socket.inet_ntop(_FAMILIES[kind], data[at : at + size]))
                else:
                    alias = _name(data, at)
            at += size
    except (IndexError, struct.error, ValueError, OSError):
        return None
    alias = None if found else alias
    return Answer(tuple(found), ttl if found or alias else 0, flags & 15, bool(flags & 0x0200), alias)


class Resolver:
    """servers: addresses and ports. valid: seconds an answer holds instead of what it says. kinds: A, AAAA or both."""

    def __init__(
        self, servers: Sequence[tuple[str, int]], *, valid: float | None = None, kinds: Sequence[int] = (A, AAAA)
    ) -> None:
        self.servers = tuple(servers)
        self.valid = valid
        self.kinds = tuple(kinds)
        self._known: dict[str, Known] = {}
        self._asked: dict[str, asyncio.Task[Known]] = {}
        self._turn = 0

    async def resolve(self, name: str, timeout: float) -> tuple[str, ...]:  # noqa: ASYNC109 - a bound of all servers
        """The addresses of a name. Raises NotResolved, in at most `timeout` seconds."""
        try:
            return (await asyncio.wait_for(self._find(name.rstrip(".").lower()), timeout))[1]
        except TimeoutError:
            raise NotResolved(name, 110) from None

    def _remembered(self, name: str) -> Known | None:
        known = self._known.get(name)
        if known is not None and known[0] <= monotonic():
            del self._known[name]
            return None
        return known

    async def _find(self, name: str) -> Known:
        known = self._remembered(name)
        if known is not None:
            return known
        task = self._asked.get(name)
        if task is None:
            task = self._asked[name] = asyncio.get_running_loop().create_task(self._ask(name, 0))
            task.add_done_callback(lambda done: self._over(name, done))
        return await asyncio.shield(task)

    def _over(self, key: str, task: asyncio.Task[Known]) -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            task.exception()  # who asked may have gone

    async def _ask(self, name: str, depth: int) -> Known:
        asked = [asyncio.ensure_future(self._ask_servers(name, kind)) for kind in self.kinds]
        answers = await asyncio.gather(*asked)
        code = next((answer.code for answer in answers if answer.code), 0)
        found = tuple(address for answer in answers for address in answer.addresses)
        ttl = min((answer.ttl for answer in answers if answer.addresses), default=0)
        until = 0.0
        if not found and not code:
            alias, ttl = next(((answer.alias, answer.ttl) for answer in answers if answer.alias), (None, 0))
            if alias is not None and depth < _ALIASES:
                # Not through a question that others have begun: two names that are each other's alias would wait.
                until, found = self._remembered(alias.lower()) or await self._ask(alias.lower(), depth + 1)
        if code or not found:
            raise NotResolved(name, code or 3)
        end = monotonic() + (ttl if self.valid is None else self.valid)
        known = (min(end, until) if until else end, found)
        if known[0] > monotonic():
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[name] = known
        return known

    async def _ask_servers(self, name: str, kind: int) -> Answer:
        try:
            asked = question(secrets.randbelow(65536), name, kind)
        except ValueError:
            raise NotResolved(name, 3) from None
        last = 110
        refused = 0
        for _ in range(2 * len(self.servers)):
            server = self.servers[self._turn % len(self.servers)]
            try:
                async with asyncio.timeout(STEP):
                    answer = await _datagram(server, asked, kind)
                    if answer.cut:
                        answer = await _stream(server, asked, kind) or answer
            except (OSError, TimeoutError):
                self._turn += 1
                continue
            if answer.code in {0, 3}:
                return answer
            last = answer.code
            self._turn += 1
            refused += 1
            if refused >= len(self.servers):  # each has said no
                break
        raise NotResolved(name, last)


async def _datagram(server: tuple[str, int], asked: bytes, kind: int) -> Answer:
    loop = asyncio.get_running_loop()
    with _open(server, socket.SOCK_DGRAM) as sock:
        await loop.sock_connect(sock, server)
        await loop.sock_sendall(sock, asked)
        while True:
            answer = parse(await loop.sock_recv(sock, 65_535), asked, kind)
            if answer is not None:
                return answer


async def _stream(server: tuple[str, int], asked: bytes, kind: int) -> Answer | None:
    loop = asyncio.get_running_loop()
    with _open(server, socket.SOCK_STREAM) as sock, contextlib.suppress(EOFError):
        await loop.sock_connect(sock, server)
        await loop.sock_sendall(sock, len(asked).to_bytes(2, "big") + asked)
        size = int.from_bytes(await _exactly(loop, sock, 2), "big")
        return parse(await _exactly(loop, sock, size), asked, kind)
    return None


async def _exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(sock, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _open(server: tuple[str, int], kind: socket.SocketKind) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in server[0] else socket.AF_INET, kind)
    sock.setblocking(False)
    return sock
