"""One TLS session of OpenSSL over memory buffers: ciphertext in, plaintext out and back. No I/O.

It has the interface of core.tls_engine.TlsEngine, and what a server may need beside it: hooks, certificates that are
chosen during the handshake, early data. `handshake` returns False in two cases: it wants more from the wire, or a hook
has to be waited for (`waiting` is its awaitable then); after either, call it again.
"""

from __future__ import annotations

import ctypes
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from headrace.core.names import literal
from headrace.core.openssl import callbacks
from headrace.core.openssl.acts import Acts
from headrace.core.openssl.failure import NotVerified, broken
from headrace.core.openssl.hello import ClientHello
from headrace.core.openssl.hooks import INTERNAL_ERROR, NO_HOOKS, Hooks, Refused
from headrace.core.openssl.library import library
from headrace.core.openssl.peer import Facts
from headrace.core.openssl.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.core.openssl.context import Context
    from headrace.core.openssl.library import Library
    from headrace.core.tls_engine import Engine

_RECORD: Final = 16_384
_WANT_READ, _WANT_WRITE, _WANT_CERTIFICATE, _WANT_HELLO = 2, 3, 4, 11
_SET_NAME: Final = 55
_NOT_VERIFIED: Final = "CERTIFICATE_VERIFY_FAILED"
_WRONG_NAME: Final = 62  # X509_V_ERR_HOSTNAME_MISMATCH
_EARLY_SUCCESS, _EARLY_FINISH = 1, 2


class Connection(Acts, Facts):
    """See the module. Any method may raise ssl.SSLError (an OpensslError).

    context: its settings; after the server was chosen by name, those of that server; session_context: those it began
    with, which have the sessions. hello: what the client has said, while a client_hello hook runs. waiting: the hook
    that a handshake waits for. data: whatever the owner of the hooks has put there. asked_name: of SNI. required_name:
    clients: whom the certificate of the server has to be for. used_early: early data came (0-RTT). revocation: servers:
    why the client's certificate does not hold although it verifies (OCSP), "" when it does.
    """

    __slots__ = (
        "_early", "_fetched", "_hook", "_ran", "_stored", "alert", "asked_name", "data", "failed_by", "hello", "hooks",
        "refusal", "required_name", "revocation", "session_context", "used_early", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        *,
        name: str | None = None,
        resume: Session | None = None,
        outer: Engine | None = None,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        super().__init__(context, outer)
        lib, pointer = library(), self.pointer
        self.session_context = context
        self.hooks = hooks
        self.used_early = False
        self.hello: ClientHello | None = None
        self.asked_name: str | None = None
        self.waiting: Awaitable[Any] | None = None
        self.data: Any = None
        self.required_name: str | None = None
        self.revocation = ""
        self.failed_by: BaseException | None = None
        self.refusal: BaseException | None = None
        self.alert = INTERNAL_ERROR
        self._early: list[bytes] | None = [] if context.is_server and context.settings.early_data else None
        self._hook = ""
        self._ran: tuple[str, ...] = ()
        self._fetched: tuple[bytes, Session] | None = None
        self._stored: list[Session] | None = None
        if context.is_server:
            lib.SSL_set_accept_state(pointer)
            return
        lib.SSL_set_connect_state(pointer)
        if name and literal(name, 0) is None:  # RFC 6066 3: no addresses
            lib.SSL_ctrl(pointer, _SET_NAME, 0, name.encode("utf-8", "surrogateescape"))
        if resume is not None:
            lib.SSL_set_session(pointer, resume.pointer)

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done. See the module."""
        lib = library()
        lib.ERR_clear_error()
        callbacks.driven[self.pointer] = self
        try:
            result, error = self._step(lib)
        finally:
            del callbacks.driven[self.pointer]
        failed, self.failed_by = self.failed_by or self.refusal, None
        if failed is None:
            self._tell_sessions()
            if result == 1:
                self.hello = None
                if not self.context.is_server and self.context.settings.verify == "on":
                    self._verify_server()
                self.established = not self.early
                self.buffered = bool(self._early or self.ragged or self._q.BIO_ctrl_pending(self._bio_in))
                return True
            if error in (_WANT_READ, _WANT_WRITE):
                return False
            if error in (_WANT_CERTIFICATE, _WANT_HELLO) and self._hook:
                hook, self._hook = self._hook, ""
                self._ran += (hook,)
                self.waiting = self._run(hook)
                return False
        self.refusal = None  # it would keep the connection, by its traceback, as would the name in this frame
        try:
            raise broken(lib, lib.SSL_get_verify_result(self.pointer)) from failed
        finally:
            del failed

    def _verify_server(self) -> None:
        """As nginx: the handshake is done, and whether the certificate will do is looked at then."""
        code = self.verify_code
        if code:
            raise NotVerified(_NOT_VERIFIED, "", code, self.verify_message)
        name = self.required_name
        if name is not None and not self.matches(name):
            raise NotVerified(_NOT_VERIFIED, "", _WRONG_NAME, f'certificate does not match "{name}"', name)

    def _step(self, lib: Library) -> tuple[int, int]:
        """The result of one call, and SSL_get_error's opinion of it."""
        if self._early is None:
            result = lib.SSL_do_handshake(self.pointer)
            return result, 0 if result == 1 else lib.SSL_get_error(self.pointer, result)
        size = ctypes.c_size_t()
        result = lib.SSL_read_early_data(self.pointer, self._buffer, _RECORD, ctypes.byref(size))
        if result == _EARLY_SUCCESS:
            self._early.append(self._buffer[: size.value])
            self.early = self.used_early = True
            return 1, 0
        if result == _EARLY_FINISH:
            self._early, self.early = None, False
            return self._step(lib)
        return -1, lib.SSL_get_error(self.pointer, 0)

    def read_early(self, limit: int) -> bytes:
        """Early data, then the rest of the handshake, then what follows it."""
        if not self._early and not self.handshake():
            self.buffered = False
            return b""
        if not self._early:
            return self.read(limit)
        data = self._early.pop(0)
        if len(data) > limit:
            self._early.insert(0, data[limit:])
        self.buffered = True
        return data[:limit]

    def write_early(self, plain: bytes) -> None:
        """Answer before the client has finished the handshake."""
        lib = library()
        size = ctypes.c_size_t()
        while plain:
            if lib.SSL_write_early_data(self.pointer, plain, len(plain), ctypes.byref(size)) != 1:
                raise broken(lib)
            plain = plain[size.value :]

    async def _run(self, hook: str) -> None:
        """Run a hook; what it raises ends the handshake at the next step."""
        try:
            if hook == "client_hello":
                self.hello = ClientHello(self.pointer)
                await self._met()
            elif self.hooks.certificate is not None:
                answer = self.hooks.certificate(self)
                if answer is not None:
                    await answer
        except Exception as error:  # noqa: BLE001 - raised again by `handshake`, when the alert is written
            self.refusal = error
            self.alert = error.alert if isinstance(error, Refused) else INTERNAL_ERROR

    async def _met(self) -> None:
        hooks, hello = self.hooks, self.hello
        assert hello is not None
        if hooks.client_hello is not None:
            answer = hooks.client_hello(self)
            if answer is not None:
                await answer
        settings = self.context.settings
        if hooks.session_get is None or settings.cache.mode == "off":
            return
        session = hello.resumes(tls13="TLSv1.3" in settings.protocols, tickets=settings.tickets)
        kept = self.session_context.sessions
        if session is None or (kept is not None and kept.get(session) is not None):
            return
        found = hooks.session_get(self, session)
        der = await found if isawaitable(found) else found
        if der is not None:
            self._fetched = session, Session.of(der)

    # what callbacks ask

    def ask(self, hook: str) -> bool:
        """Whether a hook has nothing (more) to say; `handshake` runs it otherwise."""
        if hook in self._ran:
            return True
        hooks = self.hooks
        if getattr(hooks, hook) is None and (hook != "client_hello" or hooks.session_get is None):
            return True
        self._hook = hook
        return False

    def choose_server(self) -> bool:
        """The context by the name the client asked for; False when nobody cares."""
        name: bytes | None = library().SSL_get_servername(self.pointer, 0)
        self.asked_name = None if name is None else name.decode("latin-1")
        choose = self.hooks.server_name
        if choose is None:
            return False
        chosen = choose(self, self.asked_name)
        if chosen is not None and chosen is not self.context:
            self.use_context(chosen)
        return name is not None

    def made_session(self, session: int) -> None:
        """A session was made: it is told when OpenSSL has returned."""
        if self.session_context.sessions is not None or self.hooks.session_new is not None:
            self._stored = [*(self._stored or ()), Session(session, borrowed=True)]

    def _tell_sessions(self) -> None:
        if not self._stored:
            return
        stored, self._stored = self._stored, None
        kept, tell = self.session_context.sessions, self.hooks.session_new
        for session in stored:
            der = session.der()
            if kept is not None:
                kept.store(session.id, der, session.timeout)
            if tell is not None:
                tell(self, session.id, der)

    def find_session(self, identity: bytes) -> int | None:
        """A session by its id, for OpenSSL to own."""
        kept = self.session_context.sessions
        der = None if kept is None else kept.get(identity)
        if der is not None:
            return Session.of(der).give_away()
        fetched = self._fetched
        return fetched[1].give_away() if fetched is not None and fetched[0] == identity else None

    def staple(self) -> bool:
        """Set the OCSP response of the server's certificate, if there is one."""
        stapler = self.context.stapler
        response = None if stapler is None else stapler.response(self, library().SSL_get_certificate(self.pointer))
        if response is None:
            return self.stapled
        self.set_ocsp_response(response)
        return True
