"""ngx.ssl, ngx.ssl.clienthello, ngx.ssl.session: what a script asks of a handshake, or of the connection of a request.

Certificates and keys cross as PEM or DER text; each is parsed once, as long as it is in use.
https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/ssl.md
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.certificates import der_certificates, der_key
from headrace.core.openssl.connection import Connection
from headrace.core.openssl.library import library
from headrace.core.openssl.sessions import Session
from headrace.errors import ConfError
from headrace.lua.api.pem import certificates, private_key

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.edge.tlsport import Handshake

Why = tuple[None, bytes]
FIRST: Final = 1 << 50
"""Handles of handshakes begin here: those of requests do not get so far."""
_BAD: Final = b"bad ssl conn"
_CONTEXT: Final = b"bad lua context"
_UNIX, _INET, _INET6 = 0, 1, 2

_certificates_of = functools.lru_cache(256)(der_certificates)
_key_of = functools.lru_cache(256)(der_key)


def _failed(error: ConfError) -> bytes:
    """The call that failed, without OpenSSL's own words."""
    return error.message.partition(" (SSL:")[0].encode()


class SslApi:
    """requests: live requests by handle. handshakes: those in which a script runs or has run, by handle."""

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self.handshakes: dict[int, Handshake] = {}
        self.sessions: dict[int, tuple[bytes, bytes]] = {}
        """The id and the DER of the session that a script stores, by handle; the DER that one fetched."""
        self._handles = itertools.count(FIRST)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {name: getattr(self, name) for name in dir(self) if name.startswith("ssl_")}

    def begin(self, handshake: Handshake) -> int:
        """The handle of a handshake; it is good until `end`."""
        if not handshake.handle:
            handshake.handle = next(self._handles)
            self.handshakes[handshake.handle] = handshake
        return handshake.handle

    def end(self, handle: int) -> None:
        """The handshake is over."""
        self.handshakes.pop(handle, None)
        self.sessions.pop(handle, None)

    def _engine(self, handle: int) -> Connection | None:
        handshake = self.handshakes.get(handle)
        if handshake is not None:
            return handshake.engine
        request = self.requests.get(handle)
        engine = None if request is None else getattr(request.exchange.conn.stream, "engine", None)
        return engine if isinstance(engine, Connection) else None

    def _stream(self, handle: int) -> Any:
        handshake = self.handshakes.get(handle)
        return self.requests[handle].exchange.conn.stream if handshake is None else handshake.stream

    # certificates

    def _act(self, handle: int, act: Callable[[Connection], None]) -> bytes | None:
        engine = self._engine(handle)
        if engine is None:
            return _BAD
        try:
            act(engine)
        except ConfError as error:
            return _failed(error)
        return None

    def ssl_clear_certs(self, handle: int) -> bytes | None:
        """Forget the certificates so far. All of these return why it cannot be done, or None."""
        return self._act(handle, Connection.clear_certificates)

    def ssl_set_cert(self, handle: int, pem: bytes) -> bytes | None:
        """The certificate and its issuers."""
        return self._act(handle, lambda engine: engine.use_certificates(certificates(pem)))

    def ssl_set_key(self, handle: int, pem: bytes) -> bytes | None:
        """The key of the certificate."""
        return self._act(handle, lambda engine: engine.use_key(private_key(pem)))

    def ssl_set_der_cert(self, handle: int, der: bytes) -> bytes | None:
        """The same in DER."""
        if self._engine(handle) is None:
            return _BAD
        try:
            chain = _certificates_of(der)
        except ConfError:
            return b"d2i_X509_bio() failed"
        return self._act(handle, lambda engine: engine.use_certificates(chain))

    def ssl_set_der_key(self, handle: int, der: bytes) -> bytes | None:
        """The same in DER."""
        if self._engine(handle) is None:
            return _BAD
        try:
            key = _key_of(der)
        except ConfError:
            return b"d2i_PrivateKey_bio() failed"
        return self._act(handle, lambda engine: engine.use_key(key))

    def ssl_verify_client(
        self, handle: int, authorities: bytes | None, depth: int, trusted: bytes | None = None
    ) -> bytes | None:
        """Ask the client for a certificate of these authorities (PEM), or of trusted ones that it is not told."""
        known = certificates(authorities) if authorities else ()
        more = certificates(trusted) if trusted else ()
        most = int(depth) if depth >= 0 else None
        return self._act(handle, lambda engine: engine.verify_client(known, most, more))

    def ssl_staple(self, handle: int, response: bytes) -> bytes | int | None:
        """Give an OCSP response along, when the client asks for one (0: it does not)."""
        engine = self._engine(handle)
        if engine is None:
            return _BAD
        if library().SSL_ctrl(engine.pointer, 127, 0, None) != 1:  # SSL_CTRL_GET_TLSEXT_STATUS_REQ_TYPE
            return 0
        engine.set_ocsp_response(response)
        return None

    # what is known of the connection

    def ssl_server_name(self, handle: int) -> bytes | Why | None:
        """The name that the client asked for; None: none."""
        engine = self._engine(handle)
        if engine is None:
            return None, _BAD
        name: bytes | None = library().SSL_get_servername(engine.pointer, 0)
        if name is None and engine.asked_name is not None:
            return engine.asked_name.encode("latin-1")
        return name

    def ssl_address(self, handle: int, server: int) -> tuple[bytes, int, int] | Why:
        """The raw address of the client or of ours, its kind (unix, inet, inet6) and port."""
        if self._engine(handle) is None:
            return None, _BAD
        stream = self._stream(handle)
        address = stream.local if server else stream.peer
        if not isinstance(address, tuple):
            return (address or "").encode("utf-8", "surrogateescape"), _UNIX, 0
        host, port = str(address[0]).partition("%")[0], int(address[1])
        if ":" in host:
            return socket.inet_pton(socket.AF_INET6, host), _INET6, port
        return socket.inet_pton(socket.AF_INET, host), _INET, port

    def ssl_version(self, handle: int) -> int | Why:
        """The number of the protocol version."""
        engine = self._engine(handle)
        if engine is None:
            return None, _BAD
        version: int = library().SSL_version(engine.pointer)
        return version

    def ssl_random(self, handle: int, server: int, size: int) -> bytes | int | Why:
        """The random bytes of a side, `size` of them at most; 0: how many there are."""
        engine = self._engine(handle)
        if engine is None:
            return None, _BAD
        lib = library()
        call = lib.SSL_get_server_random if server else lib.SSL_get_client_random
        if not size:
            number: int = call(engine.pointer, None, 0)
            return number
        room = ctypes.create_string_buffer(int(size))
        return room.raw[: call(engine.pointer, room, int(size))]

    def ssl_master_key(self, handle: int, size: int) -> bytes | int | Why:
        """The master key of the session, `size` bytes at most; 0: how many there are."""
        engine = self._engine(handle)
        if engine is None:
            return None, _BAD
        lib = library()
        session = lib.SSL_get_session(engine.pointer)
        if not session:
            return None, b"bad ssl session"
        call = lib.ssl["SSL_SESSION_get_master_key"]
        call.restype, call.argtypes = ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        if not size:
            number: int = call(session, None, 0)
            return number
        room = ctypes.create_string_buffer(int(size))
        return room.raw[: call(session, room, int(size))]

    def ssl_export(self, handle: int, size: int, label: bytes, context: bytes | None, early: int) -> bytes | Why | None:
        """Keying material (RFC 5705); None when there is none."""
        engine = self._engine(handle)
        if engine is None:
            return None, _BAD
        lib = library()
        room = ctypes.create_string_buffer(max(int(size), 1))
        text, number = context or b"", ctypes.c_size_t
        pointer = ctypes.c_void_p(engine.pointer)
        call = lib.ssl["SSL_export_keying_material_early" if early else "SSL_export_keying_material"]
        taken = [pointer, room, number(int(size)), label, number(len(label)), text, number(len(text))]
        if not early:
            taken.append(ctypes.c_int(context is not None))
        result = call(*taken)
        if result == 1:
            return room.raw[: int(size)]
        lib.ERR_clear_error()
        return None if result == 0 else (None, b"SSL_export_keying_material() failed")

    def ssl_pointer(self, handle: int) -> int | Why:
        """The address of the SSL."""
        engine = self._engine(handle)
        return (None, _BAD) if engine is None else engine.pointer

    def ssl_reused(self, pointer: int) -> int:
        """1 when the session of this SSL goes on with an earlier one."""
        found: int = library().SSL_session_reused(int(pointer))
        return found

    def ssl_shared_ciphers(self, handle: int) -> bytes | Why:
        """The numbers of the cipher suites that both sides know, in two bytes each."""
        engine = self._engine(handle)
        if engine is None:
            return None, _BAD
        lib = library()
        sides = []
        for name in ("SSL_get_client_ciphers", "SSL_get_ciphers"):
            call = lib.ssl[name]
            call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
            stack = call(engine.pointer)
            count = lib.OPENSSL_sk_num(stack) if stack else 0
            sides.append([lib.SSL_CIPHER_get_id(lib.OPENSSL_sk_value(stack, at)) & 0xFFFF for at in range(count)])
        ours = set(sides[1])
        return b"".join(number.to_bytes(2, "big") for number in sides[0] if number in ours)

    # the ClientHello

    def ssl_hello(self, handle: int, what: bytes, number: int) -> bytes | Why | None:
        """What the client said: "name", "ciphers" and "extensions" (two bytes each), or an "extension"."""
        engine = self._engine(handle)
        hello = None if engine is None else engine.hello
        if hello is None:
            return None, _BAD
        if what == b"extension":
            return hello.extension(int(number))
        if what == b"name":
            return hello.server_name.encode("latin-1") if hello.server_name is not None else None
        numbers = hello.ciphers if what == b"ciphers" else hello.extensions
        return b"".join(one.to_bytes(2, "big") for one in numbers) or None

    def ssl_set_protocols(self, handle: int, names: bytes) -> bytes | None:
        """Speak these versions only."""
        return self._act(handle, lambda engine: engine.set_protocols(names.decode("latin-1").split()))

    # sessions

    def ssl_session_id(self, handle: int) -> bytes | Why:
        """The id of the session that is fetched or stored, in hexadecimal digits."""
        found = self.sessions.get(handle)
        if found is None:
            return None, _BAD if self._engine(handle) is None else _CONTEXT
        return found[0].hex().upper().encode()

    def ssl_session_der(self, handle: int) -> bytes | Why:
        """The session that is stored."""
        found = self.sessions.get(handle)
        if found is None or not found[1]:
            return None, _BAD if self._engine(handle) is None else b"bad session in lua context"
        return found[1]

    def ssl_set_session(self, handle: int, der: bytes) -> bytes | None:
        """The session that was asked for."""
        found = self.sessions.get(handle)
        if found is None:
            return _BAD if self._engine(handle) is None else _CONTEXT
        try:
            Session.of(der)
        except ConfError:
            return b"failed to de-serialize session"
        self.sessions[handle] = (found[0], der)
        return None
