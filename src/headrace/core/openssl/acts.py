"""What a hook may do to a connection in the middle of its handshake."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from headrace.core.openssl import callbacks
from headrace.core.openssl.failure import unusable
from headrace.core.openssl.library import library
from headrace.core.openssl.records import Records
from headrace.core.openssl.settings import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.core.openssl.certificates import Certificate, KeyPair, PrivateKey
    from headrace.core.openssl.context import Context
    from headrace.core.tls_engine import Engine

_SET_CHAIN, _ADD_CHAIN, _SET_OCSP, _VERIFY_STORE = 88, 89, 71, 106  # SSL_ctrl
_VERIFY_PEER: Final = 1


class Acts(Records):
    """The part of a connection that is told. context: its settings. stapled: it was given an OCSP response."""

    __slots__ = ("context", "stapled")

    def __init__(self, context: Context, outer: Engine | None = None) -> None:
        super().__init__(context, outer)
        self.context = context
        self.stapled = False

    def use_context(self, context: Context) -> None:
        """Go on with the settings of another server: certificates, verification, options."""
        lib, pointer = library(), self.pointer
        lib.SSL_set_SSL_CTX(pointer, context.pointer)
        self.context = context
        lib.SSL_set_verify(pointer, lib.SSL_CTX_get_verify_mode(context.pointer), callbacks.accept_any)
        lib.SSL_set_verify_depth(pointer, lib.SSL_CTX_get_verify_depth(context.pointer))
        options = lib.SSL_CTX_get_options(context.pointer)
        lib.SSL_clear_options(pointer, lib.SSL_get_options(pointer) & ~options)
        lib.SSL_set_options(pointer, options)

    def set_protocols(self, names: Sequence[str]) -> None:
        """Speak these versions only ("TLSv1.2"); for the client_hello hook."""
        lib = library()
        for name, bit in NO_VERSION.items():
            (lib.SSL_clear_options if name in names else lib.SSL_set_options)(self.pointer, bit)

    def clear_certificates(self) -> None:
        """Forget the certificates and keys set so far."""
        library().SSL_certs_clear(self.pointer)

    def use_certificates(self, chain: Sequence[Certificate]) -> None:
        """Our own certificate, and those it was issued by. Raises ConfError."""
        lib = library()
        if not chain or lib.SSL_use_certificate(self.pointer, chain[0].pointer) != 1:
            raise unusable(lib, "SSL_use_certificate() failed")
        lib.SSL_ctrl(self.pointer, _SET_CHAIN, 0, None)
        for issuer in chain[1:]:
            if not lib.SSL_ctrl(self.pointer, _ADD_CHAIN, 1, issuer.pointer):
                raise unusable(lib, "SSL_add1_chain_cert() failed")

    def use_key(self, key: PrivateKey) -> None:
        """The key of the certificate. Raises ConfError."""
        lib = library()
        if lib.SSL_use_PrivateKey(self.pointer, key.pointer) != 1:
            raise unusable(lib, "SSL_use_PrivateKey() failed")

    def use_pair(self, pair: KeyPair) -> None:
        """`use_certificates` and `use_key` at once. Raises ConfError."""
        self.use_certificates(pair.chain)
        self.use_key(pair.key)

    def set_ocsp_response(self, response: bytes) -> None:
        """What to staple when the client asks for it (RFC 6066 8); DER."""
        lib = library()
        copy = lib.CRYPTO_malloc(max(len(response), 1), b"", 0)  # OpenSSL frees it
        ctypes.memmove(copy, response, len(response))
        lib.SSL_ctrl(self.pointer, _SET_OCSP, len(response), copy)
        self.stapled = True

    def verify_client(
        self, authorities: Sequence[Certificate] = (), depth: int | None = None, trusted: Sequence[Certificate] = ()
    ) -> None:
        """Ask the client for a certificate; the result is `verify_result`.

        authorities: who may have signed it, named to the client; trusted: the same, not named.
        """
        lib, pointer = library(), self.pointer
        lib.SSL_set_verify(pointer, _VERIFY_PEER, callbacks.accept_any)
        if depth is not None:
            lib.SSL_set_verify_depth(pointer, depth)
        if not authorities and not trusted:
            return
        store = lib.X509_STORE_new()
        names = lib.OPENSSL_sk_new_null()
        for one in authorities:
            lib.X509_STORE_add_cert(store, one.pointer)
            lib.OPENSSL_sk_push(names, lib.X509_NAME_dup(lib.X509_get_subject_name(one.pointer)))
        for one in trusted:
            lib.X509_STORE_add_cert(store, one.pointer)
        lib.SSL_ctrl(pointer, _VERIFY_STORE, 0, store)
        lib.SSL_set_client_CA_list(pointer, names)
