"""A whole gateway on a stage: requests over socket pairs, upstreams of the test, virtual time.

    with Stage("nginx.conf") as stage:
        stage.upstream("users.local:8080", http(lambda request: Reply(200, {}, '{"name": "ann"}')))
        answer = stage.request("GET", "/users/1")
        assert (answer.status, answer.body) == (200, b"ann")

Nothing listens, and nothing is connected to but what the test put there. Log files go to a temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import socket
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from headrace.conf import nginx
from headrace.conf.params import Problems
from headrace.conf.tree import Directive
from headrace.core import connect, shared
from headrace.core.clock import Clock
from headrace.core.dns import NotResolved, Resolver
from headrace.edge.build import build
from headrace.errors import ConnectionFailed, Error
from headrace.lua.directives import LuaFamily
from headrace.lua.runtime import Overlay
from headrace.testing.gateways.peers import LIMIT, Message, Peer, read_message
from headrace.testing.gateways.virtual import WALL, VirtualLoop
from headrace.topology.gateway import families
from headrace.topology.options import prefix_of

if TYPE_CHECKING:
    from headrace.core.connect import Target

_CLIENT: Final = "127.0.0.1"
_TURNS: Final = 20  # of the loop, in which the log phase and timers that are due come to their end
_NO_NAME: Final = 3  # NXDOMAIN


class Stage:
    """One gateway. Raises ConfError for a configuration that cannot run.

    conf: the path of an nginx.conf; text: or its text. prefix: the folder of relative paths (nginx -p). wall: when
    time begins (seconds since 1970).
    """

    def __init__(
        self, conf: str | os.PathLike[str] | None = None, *, text: str | None = None, prefix: str | None = None,
        wall: float = WALL,
    ) -> None:  # fmt: skip
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-stage-")))
        self._peers: dict[str, Peer] = {}
        self._names: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ports = iter(range(40_000, 60_000))
        self.connects: list[str] = []
        """Every address that was connected to, in order; also where nobody was."""
        self._loop = VirtualLoop(wall)
        self._loop.addresses = self._address
        try:
            self._build(conf, text, prefix)
        except BaseException:
            self.close()
            raise

    def _build(self, conf: str | os.PathLike[str] | None, text: str | None, prefix: str | None) -> None:
        self._stack.callback(self._loop.close)
        self._stack.enter_context(self._loop.clocks())
        connect.divert(self._dial)
        self._stack.callback(connect.divert, None)
        resolve = Resolver.resolve
        setattr(Resolver, "resolve", lambda _resolver, name, within: self._ask(name, within))  # noqa: B010 - for a while
        self._stack.callback(setattr, Resolver, "resolve", resolve)
        shared.forget()
        file = os.path.abspath(conf) if conf is not None else str(self._folder / "nginx.conf")
        prefix = prefix or (prefix_of(file) if conf is not None else str(self._folder))
        tree = nginx.load(file, prefix=prefix) if text is None else nginx.parse(text, file)
        functions: dict[str, Callable[..., Any]] = {
            "test_mono": self._loop.time,
            "test_wall": self._loop.wall,
            "test_connect": self._connect,
        }
        overlay = Overlay(Path(__file__).with_name("overlay.lua").read_bytes(), functions)
        known, problems = families(overlay), Problems()
        with self._names_of_the_file():
            self._gateway = build(
                self._logged(tree, file), prefix=prefix, problems=problems, families=known,
                conf_dir=os.path.dirname(file), body_temp=str(self._folder / "bodies"),
            )  # fmt: skip
        problems.raise_first()
        for log in self._gateway.logs.files.values():
            self._stack.callback(log.close)
        self._gateway.open_logs()
        self._runtimes = [one.runtime for one in known if isinstance(one, LuaFamily) and one.runtime is not None]
        for runtime in self._runtimes:
            runtime.use_error_log(self._gateway.error_log)
            runtime.run_init()
        self._stack.callback(self._end)
        self.run(self._start())

    @contextlib.contextmanager
    def _names_of_the_file(self) -> Iterator[None]:
        """Names that the configuration looks up (those of upstreams) have addresses, whatever they are."""
        real = socket.getaddrinfo

        def look_up(host: Any, port: Any, *_args: Any, **_kw: Any) -> list[Any]:
            text = host.decode() if isinstance(host, bytes) else str(host)
            with contextlib.suppress(OSError):
                return real(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self._named(text), int(port or 0)))]

        socket.getaddrinfo = look_up
        try:
            yield
        finally:
            socket.getaddrinfo = real

    def _named(self, name: str) -> str:
        """The address that stands for a name (RFC 2544: such addresses are nobody's)."""
        number = len(self._names) + 1
        return self._names.setdefault(name.lower().rstrip("."), f"198.18.{number // 256}.{number % 256}")

    def _to_folder(self, tree: Iterable[Directive]) -> tuple[Directive, ...]:
        """The same with all logs in our folder, written at once."""
        made = []
        for one in tree:
            if one.name == "error_log":
                one = dataclasses.replace(one, args=(str(self._folder / "error.log"), *one.args[1:]))  # noqa: PLW2901
            elif one.name == "access_log" and one.args[:1] != ("off",):
                kept = [each for each in one.args[1:] if not each.startswith(("buffer=", "gzip", "flush="))]
                one = dataclasses.replace(one, args=(str(self._folder / "access.log"), *kept))  # noqa: PLW2901
            elif one.block is not None:
                one = dataclasses.replace(one, block=self._to_folder(one.block))  # noqa: PLW2901
            made.append(one)
        return tuple(made)

    def _logged(self, tree: Sequence[Directive], file: str) -> tuple[Directive, ...]:
        """The same with an error log at the top."""
        made = self._to_folder(tree)
        if any(one.name == "error_log" for one in made):
            return made
        return (Directive("error_log", (str(self._folder / "error.log"), "notice"), file, 1), *made)

    async def _start(self) -> None:
        # Nobody connects to these: they stand for the listeners.
        pairs = {spec.socket_key: socket.socketpair() for spec in self._gateway.listens}
        for ours, other in pairs.values():
            ours.setblocking(False)
            self._stack.callback(other.close)
        for runtime in self._runtimes:
            runtime.settings.spin_time = 0.0  # time stands still: trying again would never end
            runtime.attach(self._loop)
        await self._gateway.start(self._loop, Clock(self._loop), {key: pair[0] for key, pair in pairs.items()})

    def _end(self) -> None:
        with contextlib.suppress(Error):
            self.run(self._stop())
        for runtime in self._runtimes:
            runtime.detach()
        self._runtimes = []
        gc.collect()

    async def _stop(self) -> None:
        for runtime in self._runtimes:
            runtime.exit()
        await self._gateway.stop(0.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # what a test does

    def upstream(self, address: str, peer: Peer) -> None:
        """Let `peer` answer at an address: "10.0.0.1:6379", "[::1]:80", "users.local:8080" or "unix:/path"."""
        name, colon, port = address.rpartition(":")
        if not colon or (not address.startswith("unix:") and not port.isdigit()):
            raise Error(f'"{address}" is no address: HOST:PORT, or unix:PATH', kind="test")
        if not address.startswith(("unix:", "[")) and not name.replace(".", "").isdigit():
            address = f"{self._named(name)}:{port}"
        self._peers[_plain(address)] = peer

    def request(
        self, method: str, target: str, headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: bytes | str = b"", *, listen: str | None = None, client: str = _CLIENT,
    ) -> Message:  # fmt: skip
        """One request, and its answer: start is (version, status, reason); status 0 when there is none.

        listen: the address of the listener, where there are several; client: that of the client.
        """
        fields = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        names = {name.lower() for name, _ in fields}
        data = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body
        if "host" not in names:
            fields.insert(0, ("Host", "localhost"))
        if data and not names & {"content-length", "transfer-encoding"}:
            fields.append(("Content-Length", str(len(data))))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        raw = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + data
        answer: Message = self.run(self._exchange(method, raw, listen, client))
        return answer

    def get(self, target: str, headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> Message:
        """A GET request."""
        return self.request("GET", target, headers)

    def elapse(self, seconds: float) -> None:
        """Let virtual time pass: timers fire on the way."""
        self.run(asyncio.sleep(seconds))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the gateway's loop, until it ends and what it began has come to rest."""

        async def settled() -> Any:
            made = await work
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            return made

        return self._loop.run_until_complete(settled())

    @property
    def passed(self) -> float:
        """Virtual seconds since the beginning."""
        return self._loop.passed

    @property
    def log(self) -> str:
        """The error log."""
        return self._text("error.log")

    @property
    def access_log(self) -> str:
        """The access logs, in one."""
        return self._text("access.log")

    def _text(self, name: str) -> str:
        path = self._folder / name
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""

    def close(self) -> None:
        """End the gateway."""
        self._stack.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # connections

    async def _exchange(self, method: str, raw: bytes, listen: str | None, client: str) -> Message:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        index = self._listener(listen)
        self._gateway.accept(
            _Accepted(theirs, self._gateway.ports[index].spec.address), (client, next(self._ports)), index
        )
        reader, writer = await asyncio.open_connection(sock=ours, limit=LIMIT)
        try:
            writer.write(raw)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                answer = await read_message(reader, to=method)
                while answer is not None and answer.start[1].startswith("1") and answer.start[1] != "101":
                    answer = await read_message(reader, to=method)
                if answer is not None:
                    return answer
            return Message(("", "0", ""))
        finally:
            writer.close()

    def _listener(self, listen: str | None) -> int:
        for index, port in enumerate(self._gateway.ports):
            if listen in (None, port.spec.text, port.spec.text.rpartition(":")[2]) and port.tls() is None:
                return index
        raise Error(f"there is no listener {listen or ''} without TLS", kind="test")

    def _address(self, name: str) -> str | None:
        return self._names.get(name.lower().rstrip("."))

    async def _ask(self, name: str, _within: float = 0.0) -> tuple[str, ...]:
        address = self._address(name)
        if address is None:
            raise NotResolved(name, _NO_NAME)
        return (address,)

    def _dial(self, target: Target) -> socket.socket:
        address = f"unix:{target.unix}" if target.unix is not None else str(target)
        if target.unix is None and (known := self._address(target.host)) is not None:
            address = f"{known}:{target.port}"
        made = self._open(address, socket.SOCK_STREAM)
        if made is None:
            raise ConnectionFailed(
                f"connect() failed (111: Connection refused): nobody is at {address}", kind="refused"
            )
        made.setblocking(False)
        return made

    def _connect(self, address: bytes, kind: float) -> int:
        """For the overlay: a descriptor, or -1."""
        made = self._open(address.decode("utf-8", "surrogateescape"), int(kind))
        if made is None:
            return -1
        made.setblocking(False)
        return made.detach()

    def _open(self, address: str, kind: int) -> socket.socket | None:
        known = {value: key for key, value in self._names.items()}
        host, _, port = address.rpartition(":")
        self.connects.append(f"{known[host]}:{port}" if host in known else address)
        peer = self._peers.get(_plain(address))
        if peer is None or kind != socket.SOCK_STREAM:
            return None
        ours, theirs = socket.socketpair()
        task = self._loop.create_task(self._serve(peer, theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ours

    async def _serve(self, peer: Peer, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=sock, limit=LIMIT)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await peer(reader, writer)
        finally:
            writer.close()


class _Accepted(socket.socket):
    """The gateway's end of a client's connection; it says that it came by TCP."""

    def __init__(self, sock: socket.socket, address: Any) -> None:
        super().__init__(fileno=sock.detach())
        self._address = address

    def getsockname(self) -> Any:
        return self._address


def _plain(address: str) -> str:
    """An address as the overlay writes it."""
    host, _, port = address.rpartition(":")
    if not host.startswith("["):
        return address
    packed = socket.inet_pton(socket.AF_INET6, host[1:-1])
    return f"[{':'.join(f'{packed[i] * 256 + packed[i + 1]:x}' for i in range(0, 16, 2))}]:{port}"
