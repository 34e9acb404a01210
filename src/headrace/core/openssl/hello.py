"""What a client has said in its ClientHello (RFC 8446 4.1.2, RFC 5246 7.4.1.2)."""

from __future__ import annotations

import ctypes
from typing import Final

from headrace.core.openssl.library import library

SERVER_NAME: Final = 0
SESSION_TICKET: Final = 35
PRE_SHARED_KEY: Final = 41
SUPPORTED_VERSIONS: Final = 43
_TLS12: Final = 0x0303
_TLS13: Final = 0x0304
_NAMES: Final = {0x0002: "SSLv2", 0x0300: "SSLv3", 0x0301: "TLSv1", 0x0302: "TLSv1.1", 0x0303: "TLSv1.2",
                 0x0304: "TLSv1.3"}  # fmt: skip


class ClientHello:
    """Good as long as the hook runs that got it: the bytes are OpenSSL's. pointer: the SSL it belongs to."""

    __slots__ = ("pointer",)

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def _bytes(self, call: str) -> bytes:
        where = ctypes.c_void_p()
        size = getattr(library(), f"SSL_client_hello_get0_{call}")(self.pointer, ctypes.byref(where))
        return ctypes.string_at(where.value or 0, size) if size else b""

    @property
    def legacy_version(self) -> int:
        """The version field, which TLS 1.3 leaves at 0x0303."""
        version: int = library().SSL_client_hello_get0_legacy_version(self.pointer)
        return version

    @property
    def session_id(self) -> bytes:
        """The legacy session id, b"" without one."""
        return self._bytes("session_id")

    @property
    def ciphers(self) -> tuple[int, ...]:
        """The numbers of the cipher suites, in the client's order."""
        return _words(self._bytes("ciphers"))

    def extension(self, number: int) -> bytes | None:
        """The data of an extension, None when it is not there."""
        where, size = ctypes.c_void_p(), ctypes.c_size_t()
        if not library().SSL_client_hello_get0_ext(self.pointer, number, ctypes.byref(where), ctypes.byref(size)):
            return None
        return ctypes.string_at(where.value or 0, size.value) if size.value else b""

    @property
    def extensions(self) -> tuple[int, ...]:
        """The numbers of the extensions that are there, in the client's order."""
        lib = library()
        where, size = ctypes.c_void_p(), ctypes.c_size_t()
        if not lib.SSL_client_hello_get1_extensions_present(self.pointer, ctypes.byref(where), ctypes.byref(size)):
            return ()
        try:
            return tuple((ctypes.c_int * size.value).from_address(where.value or 0)) if size.value else ()
        finally:
            lib.CRYPTO_free(where, b"", 0)

    @property
    def server_name(self) -> str | None:
        """The host name asked for (RFC 6066 3)."""
        data = self.extension(SERVER_NAME)
        # a list's length, the kind (0: a host), the name's length, the name
        if data is None or len(data) <= 5 or data[2]:
            return None
        size = int.from_bytes(data[3:5], "big")
        return data[5 : 5 + size].decode("latin-1") if size and len(data) >= 5 + size else None

    @property
    def versions(self) -> tuple[int, ...]:
        """The protocol versions offered, as numbers, the best one first."""
        data = self.extension(SUPPORTED_VERSIONS)
        if data:
            return _words(data[1 : 1 + data[0]])
        return tuple(range(min(self.legacy_version, _TLS12), 0x02FF, -1))

    @property
    def version_names(self) -> tuple[str, ...]:
        """`versions` by name; those that have none are left out."""
        return tuple(_NAMES[number] for number in self.versions if number in _NAMES)

    def resumes(self, *, tls13: bool, tickets: bool) -> bytes | None:
        """The id of the session that the client wants to go on with; None when there is none, or it is in a ticket.

        tls13: this side speaks TLS 1.3. tickets: this side gives tickets.
        """
        if tls13 and _TLS13 in self.versions:
            identity = self._identity()
            return identity if identity is not None and len(identity) <= 32 else None
        if tickets and self.extension(SESSION_TICKET):
            return None
        return self.session_id or None

    def _identity(self) -> bytes | None:
        """The first identity of the pre-shared keys: with TLS 1.3 and no tickets it is a session's id."""
        data = self.extension(PRE_SHARED_KEY)
        if data is None or len(data) < 4:
            return None
        size = int.from_bytes(data[2:4], "big")
        return data[4 : 4 + size] if len(data) >= 4 + size else None


def _words(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data) - 1, 2))
