"""What is known of an established session: its parameters, and the certificate of the peer."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from headrace.core.openssl.certificates import Certificate
from headrace.core.openssl.handles import items
from headrace.core.openssl.library import library
from headrace.core.openssl.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUPS, _SHARED_GROUP, _NEGOTIATED = 90, 93, 134
_UNKNOWN_GROUP: Final = 0x1000000
_OK: Final = 0
_NO_CERTIFICATE: Final = "NONE"


class Facts:
    """The part of a connection that is asked. pointer: the SSL."""

    __slots__ = ()
    pointer: int

    @property
    def version(self) -> str | None:
        """The protocol in use ("TLSv1.3")."""
        text: bytes | None = library().SSL_get_version(self.pointer)
        return None if text is None else text.decode()

    @property
    def cipher(self) -> str | None:
        """The name of the cipher suite in use."""
        lib = library()
        cipher = lib.SSL_get_current_cipher(self.pointer)
        return lib.SSL_CIPHER_get_name(cipher).decode() if cipher else None

    @property
    def alpn(self) -> str | None:
        """The application protocol agreed on."""
        where, size = ctypes.c_void_p(), ctypes.c_uint()
        library().SSL_get0_alpn_selected(self.pointer, ctypes.byref(where), ctypes.byref(size))
        return ctypes.string_at(where.value, size.value).decode("latin-1") if where.value else None

    @property
    def session_reused(self) -> bool:
        """Whether the handshake resumed an earlier session."""
        return bool(library().SSL_session_reused(self.pointer))

    @property
    def current_session(self) -> Session | None:
        """The session, to be resumed later; None when it cannot be."""
        pointer = library().SSL_get1_session(self.pointer)
        session = Session(pointer) if pointer else None
        return session if session is not None and session.resumable else None

    @property
    def session_name(self) -> str | None:
        """The server name of the handshake that made the session."""
        lib = library()
        pointer = lib.SSL_get_session(self.pointer)
        name: bytes | None = lib.SSL_SESSION_get0_hostname(pointer) if pointer else None
        return None if name is None else name.decode("latin-1")

    @property
    def session_id(self) -> str | None:
        """The id of the session in hexadecimal digits."""
        pointer = library().SSL_get_session(self.pointer)
        return Session(pointer, borrowed=True).id.hex() or None if pointer else None

    @property
    def curve(self) -> str | None:
        """The group of the key exchange ("X25519"), in hexadecimal when it has no name."""
        lib = library()
        number = lib.SSL_ctrl(self.pointer, _NEGOTIATED, 0, None)
        return self._group_name(number) if number > 0 else None

    @property
    def curves(self) -> str | None:
        """The groups that the client supports, with colons between them."""
        lib = library()
        count = lib.SSL_ctrl(self.pointer, _GROUPS, 0, None)
        if count <= 0:
            return None
        numbers = (ctypes.c_int * count)()
        lib.SSL_ctrl(self.pointer, _GROUPS, 0, numbers)
        return ":".join(self._group_name(number) for number in numbers)

    def _group_name(self, number: int) -> str:
        if number & _UNKNOWN_GROUP:
            return f"0x{number & 0xFFFF:04x}"
        name: bytes | None = library().OBJ_nid2sn(number)
        return name.decode() if name else f"0x{number & 0xFFFF:04x}"

    @property
    def ciphers(self) -> str | None:
        """The cipher suites that the client offered, with colons between them; servers, in the first handshake."""
        lib = library()
        where = ctypes.c_void_p()
        size = lib.SSL_ctrl(self.pointer, 110, 0, ctypes.byref(where))  # SSL_CTRL_GET_RAW_CIPHERLIST
        if size <= 0:
            return None
        data = ctypes.string_at(where.value or 0, size)
        shown = []
        for at in range(0, len(data) - 1, 2):
            cipher = lib.SSL_CIPHER_find(self.pointer, data[at : at + 2])
            shown.append(lib.SSL_CIPHER_get_name(cipher).decode() if cipher else f"0x{data[at]:02x}{data[at + 1]:02x}")
        return ":".join(shown)

    def peer_der(self) -> bytes | None:
        """The certificate of the peer in DER, None without one."""
        found = self.peer
        return None if found is None else found.der()

    @property
    def peer(self) -> Certificate | None:
        """The certificate of the peer, whether it is good or not."""
        pointer = library().SSL_get1_peer_certificate(self.pointer)
        return Certificate(pointer) if pointer else None

    @property
    def peer_chain(self) -> Sequence[Certificate]:
        """The certificates that the peer sent (of a client without its own)."""
        return [Certificate(one, borrowed=True) for one in items(library().SSL_get_peer_cert_chain(self.pointer))]

    @property
    def verified_chain(self) -> Sequence[Certificate]:
        """The chain of the peer's certificate up to the one that is trusted; empty when it was not verified."""
        return [Certificate(one, borrowed=True) for one in items(library().SSL_get0_verified_chain(self.pointer))]

    @property
    def verify_code(self) -> int:
        """X509_V_OK (0) or X509_V_ERR_...: what verification of the peer's certificate said."""
        code: int = library().SSL_get_verify_result(self.pointer)
        return code

    @property
    def verify_message(self) -> str:
        """`verify_code` in words."""
        text: bytes = library().X509_verify_cert_error_string(self.verify_code)
        return text.decode()

    def matches(self, name: str) -> bool:
        """Whether the certificate of the peer is for this host name (RFC 6125)."""
        found = self.peer
        data = name.encode("utf-8", "surrogateescape")
        if found is None:
            return False
        return bool(library().X509_check_host(found.pointer, data, len(data), 0, None) == 1)
