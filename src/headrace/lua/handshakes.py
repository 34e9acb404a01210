"""The phases of a TLS handshake: ssl_client_hello, ssl_certificate, ssl_session_fetch and ssl_session_store_by_lua*.

All but the last may wait; the handshake waits with them. A script that fails, or leaves with ngx.ERROR or a status of
400 and more, ends the handshake; where a session is fetched, there is none then.
https://github.com/openresty/lua-nginx-module#ssl_certificate_by_lua_block
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.hooks import INTERNAL_ERROR, Refused
from headrace.edge import log
from headrace.lua.runtime import KEEP, SSL_CERT, SSL_CLIENT_HELLO, SSL_SESSION_FETCH, SSL_SESSION_STORE

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.edge.tlsport import Handshake
    from headrace.edge.tlsserver import Step
    from headrace.lua.runtime import Runtime
    from headrace.lua.source import Source

_NOTES: Final = {
    SSL_CLIENT_HELLO: b", context: ssl_client_hello_by_lua*",
    SSL_CERT: b", context: ssl_certificate_by_lua*",
    SSL_SESSION_FETCH: b", context: ssl_session_fetch_by_lua*",
    SSL_SESSION_STORE: b", context: ssl_session_store_by_lua*",
}
_ENDS: Final = {
    SSL_CLIENT_HELLO: ("lua_client_hello_by_lua", "client hello"),
    SSL_CERT: ("lua_certificate_by_lua", "cert"),
    SSL_SESSION_FETCH: ("ssl_session_fetch_by_lua*", "sess get"),
    SSL_SESSION_STORE: ("ssl_session_store_by_lua*", "sess new"),
}
_TLS13: Final = 0x0304
_SKIPPED: Final = b"skipped since TLS version >= 1.3 (%d)" % _TLS13
"""As in OpenResty: with TLS 1.3 clients bring their sessions along, in tickets."""
_LEAST_FAILURE: Final = 400


class Handshakes:
    """Makes the steps of one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def made(self, phase: str, source: Source) -> Any:
        """The step of a phase, as edge.tlsserver.ServerTls has it."""
        if phase == "ssl_session_fetch":
            return partial(self.fetch, source)
        if phase == "ssl_session_store":
            return partial(self.store, source)
        return self.step(source, SSL_CLIENT_HELLO if phase == "ssl_client_hello" else SSL_CERT)

    def step(self, source: Source, phase: int) -> Step:
        """A step that the handshake does not go on without."""

        def run(handshake: Handshake) -> Awaitable[None] | None:
            result = self._run(handshake, source, phase)
            if result is None:
                return self._finish(handshake, phase)
            _tell(handshake, phase, result)
            _judge(result)
            return None

        return run

    def fetch(self, source: Source, handshake: Handshake, identity: bytes) -> Awaitable[bytes | None] | bytes | None:
        """The session with this id, in DER."""
        api = self.runtime.ssl
        hello = handshake.engine.hello
        ours = handshake.engine.context.settings.protocols
        if hello is not None and _TLS13 in hello.versions and "TLSv1.3" in ours:
            handshake.log_error(log.DEBUG, b"ssl_session_fetch_by_lua*: " + _SKIPPED)
            return None
        handle = self._begin(handshake)
        api.sessions[handle] = (identity, b"")
        result = self._run(handshake, source, SSL_SESSION_FETCH)
        if result is None:
            return self._fetched_late(handshake)
        _tell(handshake, SSL_SESSION_FETCH, result)
        return self._fetched(handle, result)

    def store(self, source: Source, handshake: Handshake, identity: bytes, der: bytes) -> None:
        """Keep a session."""
        runtime = self.runtime
        if handshake.engine.version == "TLSv1.3":
            handshake.log_error(log.DEBUG, b"ssl_session_store_by_lua*: " + _SKIPPED)
            return
        handle = self._begin(handshake)
        handshake.note = _NOTES[SSL_SESSION_STORE]
        chunk = self._chunk(handshake, source)
        if chunk is None:
            return
        runtime.ssl.sessions[handle] = (identity, der)
        try:
            ok, value = runtime.run_plain(chunk, handle, SSL_SESSION_STORE)[:2]
        finally:
            runtime.ssl.sessions.pop(handle, None)
        if not ok:
            handshake.log_error(log.ERR, value.replace(b"run ssl_session", b"run session", 1) + handshake.note)
        _tell(handshake, SSL_SESSION_STORE, int(value or 0) if ok else -1)

    def _begin(self, handshake: Handshake) -> int:
        runtime = self.runtime
        if not handshake.handle:
            handle = runtime.ssl.begin(handshake)
            handshake.on_cleanup(partial(runtime.forget, handle))
            handshake.on_cleanup(partial(runtime.ssl.end, handle))
        return handshake.handle

    def _chunk(self, handshake: Handshake, source: Source) -> int | None:
        chunk = source.chunk(handshake)  # type: ignore[arg-type]
        if chunk.failure is None:
            return chunk.ref
        handshake.log_error(log.ERR, b"failed to load Lua code: " + chunk.failure + handshake.note)
        return None

    def _run(self, handshake: Handshake, source: Source, phase: int) -> bytes | int | None:
        """Run a script; None: it waits."""
        handle = self._begin(handshake)
        handshake.note = _NOTES[phase]
        chunk = self._chunk(handshake, source)
        if chunk is None:
            return 500
        result = self.runtime.run(chunk, handle, phase + KEEP)
        if result is False:
            return None
        return result[0] if isinstance(result, tuple) else result

    async def _wait(self, handshake: Handshake) -> bytes | int:
        runtime = self.runtime
        try:
            return await runtime.scheduler.wait_for(handshake.handle)
        except BaseException:
            runtime.forget(handshake.handle)
            raise

    async def _finish(self, handshake: Handshake, phase: int) -> None:
        result = await self._wait(handshake)
        _tell(handshake, phase, result, late=True)
        _judge(result)

    async def _fetched_late(self, handshake: Handshake) -> bytes | None:
        result = await self._wait(handshake)
        _tell(handshake, SSL_SESSION_FETCH, result, late=True)
        return self._fetched(handshake.handle, result)

    def _fetched(self, handle: int, result: bytes | int) -> bytes | None:
        _, der = self.runtime.ssl.sessions.pop(handle, (b"", b""))
        return der or None if _passed(result) else None


def _passed(result: bytes | int) -> bool:
    return isinstance(result, bytes) or (result != -1 and result < _LEAST_FAILURE)


def _tell(handshake: Handshake, phase: int, result: bytes | int, *, late: bool = False) -> None:
    """The end of a script, for the log at level debug, in OpenResty's words. late: it had to wait."""
    name, what = _ENDS[phase]
    value = result if isinstance(result, int) and phase != SSL_SESSION_STORE else 0
    word = "" if late else f"handler return value: {value}, "
    handshake.log_error(log.DEBUG, f"{name}: {word}{what} cb exit code: {int(_passed(result))}".encode())


def _judge(result: bytes | int) -> None:
    if not _passed(result):
        raise Refused("a script has ended the handshake", INTERNAL_ERROR)
