"""An SSL_CTX made of settings: versions, ciphers, certificates, trust, sessions.

What is wrong with the settings is told in nginx's words, by ConfError.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl import callbacks
from headrace.core.openssl.certificates import KeyPair, load_pair, pem_certificates
from headrace.core.openssl.connection import Connection
from headrace.core.openssl.failure import unusable
from headrace.core.openssl.handles import Handle, Memory
from headrace.core.openssl.hooks import NO_HOOKS, Hooks, Stapler
from headrace.core.openssl.library import Library, library
from headrace.core.openssl.sessions import SharedSessions
from headrace.core.openssl.settings import NO_VERSION, Settings
from headrace.core.openssl.tickets import TicketKeys
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.core.tls_engine import Engine

_NO_COMPRESSION: Final = 1 << 17
_NO_TICKET: Final = 1 << 14
_NO_RENEGOTIATION: Final = 1 << 30
_NO_ANTI_REPLAY: Final = 1 << 24
_SERVER_PREFERENCE: Final = 1 << 22
_MODE: Final = 1 | 2 | 8 | 16  # partial writes, moving buffers, no automatic chain, buffers released while idle
_EARLY: Final = 16384
_LARGEST_RECORD: Final = 16384
# SSL_CTX_ctrl(3) and the macros on it
_SET_MODE, _CACHE_SIZE, _CACHE_MODE = 33, 42, 44
_ADD_CHAIN, _GROUPS_LIST, _MIN_VERSION, _MAX_VERSION, _DH_AUTO = 89, 92, 123, 124, 118
_SERVER_NAME_CB, _STATUS_CB, _TICKET_KEY_CB = 53, 63, 72
_CACHE_OFF, _CACHE_CLIENT, _CACHE_SERVER, _NO_AUTO_CLEAR, _NO_INTERNAL_STORE, _NO_INTERNAL = 0, 1, 2, 128, 512, 768
_MAX_FRAGMENT: Final = 52
_TLS13: Final = 0x0304
_CONF_FLAGS: Final = 0x2 | 0x4 | 0x8 | 0x10 | 0x20  # file, client, server, errors, certificates
_PATHS: Final = (2, 3)  # SSL_CONF_TYPE_FILE, SSL_CONF_TYPE_DIR


class Context:
    """See the module. pointer: the SSL_CTX; settings: what it was made of. Raises ConfError.

    data: whatever belongs to this context for its user (edge: its virtual server). stapler: what has OCSP responses
    for it.
    """

    __slots__ = (
        "__weakref__", "_handle", "data", "pairs", "pointer", "sessions", "settings", "stapler", "ticket_keys",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        lib = library()
        self.settings = settings
        self.data: Any = None
        self.stapler: Stapler | None = None
        self.ticket_keys: TicketKeys | None = None
        self.sessions: SharedSessions | None = None
        pointer = lib.SSL_CTX_new(lib.TLS_method())
        if not pointer:
            raise unusable(lib, "SSL_CTX_new() failed")
        self._handle = Handle(pointer, "SSL_CTX")
        self.pointer: int = pointer
        self.pairs = tuple(load_pair(cert, key, settings.passphrases) for cert, key in settings.pairs)
        self._basics(lib)
        for pair in self.pairs:
            self.use(pair)
        self._trust(lib)
        self._groups(lib)
        if settings.is_server:
            self._server(lib)
        else:
            self._client(lib)
        self._commands(lib)

    @property
    def is_server(self) -> bool:
        """Whether this side answers handshakes."""
        return self.settings.is_server

    @property
    def reuse_sessions(self) -> bool:
        """Clients: resume the last session with the same peer."""
        return self.settings.reuse_sessions

    def ctrl(self, command: int, number: int = 0, pointer: Any = None) -> int:
        """SSL_CTX_ctrl."""
        answer: int = library().SSL_CTX_ctrl(self.pointer, command, number, pointer)
        return answer

    def _basics(self, lib: Library) -> None:
        settings = self.settings
        options = _NO_COMPRESSION | _NO_RENEGOTIATION | _NO_ANTI_REPLAY
        for name, bit in NO_VERSION.items():
            lib.SSL_CTX_clear_options(self.pointer, bit)
            if name not in settings.protocols:
                options |= bit
        if settings.prefer_server_ciphers:
            options |= _SERVER_PREFERENCE
        lib.SSL_CTX_set_options(self.pointer, options)
        self.ctrl(_MIN_VERSION, 0)
        self.ctrl(_MAX_VERSION, _TLS13)
        self.ctrl(_SET_MODE, _MODE)
        if settings.record_size != _LARGEST_RECORD:
            self.ctrl(_MAX_FRAGMENT, settings.record_size)
        if not lib.SSL_CTX_set_cipher_list(self.pointer, settings.ciphers.encode("utf-8", "surrogateescape")):
            raise unusable(lib, f'SSL_CTX_set_cipher_list("{settings.ciphers}") failed')

    def use(self, pair: KeyPair) -> None:
        """Add a certificate with its chain and key. Raises ConfError."""
        lib = library()
        if lib.SSL_CTX_use_certificate(self.pointer, pair.chain[0].pointer) != 1:
            raise unusable(lib, f'SSL_CTX_use_certificate("{pair.source}") failed')
        for issuer in pair.chain[1:]:
            if not self.ctrl(_ADD_CHAIN, 1, issuer.pointer):
                raise unusable(lib, f'SSL_CTX_add1_chain_cert("{pair.source}") failed')
        if lib.SSL_CTX_use_PrivateKey(self.pointer, pair.key.pointer) != 1:
            raise unusable(lib, f'SSL_CTX_use_PrivateKey("{pair.source}") failed')

    def _trust(self, lib: Library) -> None:
        settings, pointer = self.settings, self.pointer
        lib.SSL_CTX_set_verify_depth(pointer, settings.verify_depth)
        if settings.verify != "off":
            # A client of TLS looks at the result by itself, when the handshake is done.
            lib.SSL_CTX_set_verify(pointer, 1 if settings.is_server else 0, callbacks.accept_any)
        for source in (settings.client_ca, settings.trusted):
            if source is None:
                continue
            name = source.encode("utf-8", "surrogateescape")
            load = lib.SSL_CTX_load_verify_dir if os.path.isdir(source) else lib.SSL_CTX_load_verify_file
            if not load(pointer, name):
                raise unusable(lib, f'SSL_CTX_load_verify_locations("{source}") failed')
        if settings.client_ca is not None and not os.path.isdir(settings.client_ca):
            names = lib.SSL_load_client_CA_file(settings.client_ca.encode("utf-8", "surrogateescape"))
            if not names:
                raise unusable(lib, f'SSL_load_client_CA_file("{settings.client_ca}") failed')
            lib.SSL_CTX_set_client_CA_list(pointer, names)
        lib.ERR_clear_error()
        if settings.crl is not None:
            store = lib.SSL_CTX_get_cert_store(pointer)
            # PEM files may hold several lists, as they may hold several certificates
            if not lib.X509_STORE_load_file(store, settings.crl.encode("utf-8", "surrogateescape")):
                raise unusable(lib, f'X509_LOOKUP_load_file("{settings.crl}") failed')
            lib.X509_STORE_set_flags(store, 0x4 | 0x8)  # X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL

    def _groups(self, lib: Library) -> None:
        settings = self.settings
        if settings.curves != "auto" and not self.ctrl(_GROUPS_LIST, 0, settings.curves.encode()):
            raise unusable(lib, f'SSL_CTX_set1_curves_list("{settings.curves}") failed')
        if settings.dhparam is None:
            return
        try:
            with open(settings.dhparam, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ConfError(f'BIO_new_file("{settings.dhparam}") failed ({error.strerror})') from error
        with Memory(data) as bio:
            key = lib.PEM_read_bio_Parameters(bio, None)
        if not key:
            raise unusable(lib, f'PEM_read_bio_DHparams("{settings.dhparam}") failed')
        if lib.SSL_CTX_set0_tmp_dh_pkey(self.pointer, key) != 1:
            lib.EVP_PKEY_free(key)
            raise unusable(lib, f'SSL_CTX_set0_tmp_dh_pkey("{settings.dhparam}") failed')

    def _server(self, lib: Library) -> None:
        settings, pointer = self.settings, self.pointer
        lib.SSL_CTX_set_client_hello_cb(pointer, callbacks.client_hello, None)
        lib.SSL_CTX_set_cert_cb(pointer, callbacks.certificate, None)
        lib.SSL_CTX_callback_ctrl(pointer, _SERVER_NAME_CB, callbacks.server_name)
        lib.SSL_CTX_callback_ctrl(pointer, _STATUS_CB, callbacks.status)
        lib.SSL_CTX_set_alpn_select_cb(pointer, callbacks.alpn, None)
        lib.SSL_CTX_set_timeout(pointer, int(settings.timeout))
        self._sessions(lib)
        if settings.early_data:
            lib.SSL_CTX_set_max_early_data(pointer, _EARLY)

    def _sessions(self, lib: Library) -> None:
        settings, cache = self.settings, self.settings.cache
        identity = hashlib.sha256(b"HTTP")
        for pair in self.pairs:
            identity.update(pair.chain[0].der())
        for source in (settings.client_ca,) if settings.verify != "off" and settings.client_ca else ():
            for one in pem_certificates(_contents(source)):
                identity.update(one.subject())
        lib.SSL_CTX_set_session_id_context(self.pointer, identity.digest(), 32)
        mode = _CACHE_SERVER
        if cache.mode == "off":
            mode = _CACHE_OFF
        elif cache.mode == "none":
            mode |= _NO_AUTO_CLEAR | _NO_INTERNAL_STORE
            self.ctrl(_CACHE_SIZE, 1)
        else:
            if cache.builtin is None:
                mode |= _NO_INTERNAL
            elif cache.builtin:
                self.ctrl(_CACHE_SIZE, cache.builtin)
            if cache.zone is not None:
                self.sessions = SharedSessions(cache.zone, cache.size)
        self.ctrl(_CACHE_MODE, mode)
        if cache.mode != "off":
            lib.SSL_CTX_sess_set_new_cb(self.pointer, callbacks.session_new)
            lib.SSL_CTX_sess_set_get_cb(self.pointer, callbacks.session_get)
        if not settings.tickets:
            lib.SSL_CTX_set_options(self.pointer, _NO_TICKET)
            return
        self.ticket_keys = TicketKeys.of(settings, self.sessions)
        if self.ticket_keys is not None:
            lib.SSL_CTX_callback_ctrl(self.pointer, _TICKET_KEY_CB, callbacks.ticket_key)

    def _client(self, lib: Library) -> None:
        alpn = b"".join(bytes((len(name),)) + name.encode() for name in self.settings.alpn)
        if alpn:
            lib.SSL_CTX_set_alpn_protos(self.pointer, alpn, len(alpn))
        self.ctrl(_CACHE_MODE, _CACHE_CLIENT | _NO_INTERNAL)

    def _commands(self, lib: Library) -> None:
        """ssl_conf_command: SSL_CONF_cmd(3)."""
        if not self.settings.commands:
            return
        conf = lib.SSL_CONF_CTX_new()
        try:
            lib.SSL_CONF_CTX_set_flags(conf, _CONF_FLAGS)
            lib.SSL_CONF_CTX_set_ssl_ctx(conf, self.pointer)
            for name, value in self.settings.commands:
                kind = lib.SSL_CONF_cmd_value_type(conf, name.encode())
                if kind in _PATHS and not value.startswith("/"):
                    value = f"{self.settings.folder}/{value}"  # noqa: PLW2901 - the same thing, in full
                if lib.SSL_CONF_cmd(conf, name.encode(), value.encode("utf-8", "surrogateescape")) <= 0:
                    raise unusable(lib, f'SSL_CONF_cmd("{name}", "{value}") failed')
            if lib.SSL_CONF_CTX_finish(conf) != 1:
                raise unusable(lib, "SSL_CONF_finish() failed")
        finally:
            lib.SSL_CONF_CTX_free(conf)

    def name_of(self, _dialled: str | None) -> str | None:
        """See core.tls_engine.Terms: names are a matter of `Peering`."""
        return None

    def engine(
        self, *, name: str | None = None, resume: Any = None, outer: Engine | None = None, hooks: Hooks | None = None
    ) -> Connection:
        """A connection with these settings. name: clients: sent as SNI."""
        return Connection(self, name=name, resume=resume, outer=outer, hooks=hooks or NO_HOOKS)


@dataclass(frozen=True)
class Peering:
    """A client's context and the names for one peer; a value, as part of a pool's key.

    send: the name of SNI, None for none. verify: whom the certificate has to be for, where the context verifies. own:
    our certificate and key, and passphrases, in place of those of the context; read for each connection. realm: those
    with another one do not go on with each other's sessions.
    """

    context: Context
    send: str | None = None
    verify: str | None = None
    own: tuple[str, str, tuple[bytes, ...]] | None = None
    realm: str | bytes = ""
    is_server = False

    @property
    def reuse_sessions(self) -> bool:
        """Resume the last session with the same peer."""
        return self.context.reuse_sessions

    def name_of(self, _dialled: str | None) -> str | None:
        """See core.tls_engine.Terms."""
        return self.send or self.verify

    def engine(
        self, *, name: str | None = None, resume: Any = None, outer: Engine | None = None, hooks: Hooks | None = None
    ) -> Connection:
        """A connection; see Context.engine. errors.ConfError: our certificate cannot be read."""
        made = self.context.engine(name=self.send and name, resume=resume, outer=outer, hooks=hooks)
        made.required_name = self.verify
        if self.own is not None:
            made.use_pair(load_pair(*self.own))
        return made


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
